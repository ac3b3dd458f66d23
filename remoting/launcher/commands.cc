#include "launcher/commands.h"

#include <unistd.h>

#include <cstdio>

#include "gen/messages.h"
#include "launcher/exit_codes.h"
#include "launcher/pool.h"

namespace headrace::launcher {
namespace {

constexpr Option run_options[] = {
    {"gpus", 'n', "COUNT", "how many GPUs (1)"},
    {"memory", 'm', "SIZE", "memory on each: 512MiB, 8GiB, bytes (all of a GPU)"},
    {"server", 's', "HOST[:PORT]", "the appliance, instead of the configured one"},
    {"config", 0, "FOLDER", "client.conf, client.pem, client.key, ca.pem"},
};

constexpr Option list_options[] = {
    {"json", 0, nullptr, "print JSON (schema headrace.list/1)"},
    {"server", 's', "HOST[:PORT]", "the appliance, instead of the configured one"},
    {"config", 0, "FOLDER", "client.conf, client.pem, client.key, ca.pem"},
};

constexpr Option smi_options[] = {
    {"list-gpus", 'L', nullptr, "one line for each GPU"},
    {"query", 'q', nullptr, "everything that is known, in lines"},
    {"query-gpu", 0, "FIELDS", "name,memory.used,…: a line of them for each GPU"},
    {"query-compute-apps", 0, "FIELDS", "pid,process_name,used_memory,…: one for each process"},
    {"format", 0, "FORMAT", "of a query: csv[,noheader][,nounits]"},
    {"id", 'i', "GPU", "only this one: index, UUID or bus id"},
    {"json", 0, nullptr, "print JSON (schema headrace.smi/1)"},
};

constexpr Option version_options[] = {
    {"json", 0, nullptr, "print JSON (schema headrace.version/1)"},
};

constexpr Command table[] = {
    {"run", "Run a program with GPUs of the pool.",
     "run [-n COUNT] [-m SIZE] [--] [PROGRAM [ARGUMENT…]]",
     "  headrace run -n 1 -m 8GiB -- python train.py\n"
     "  headrace run -n 2 -- ./simulate      two whole GPUs\n"
     "  headrace run -m 2GiB                 a shell that has one\n",
     run_options, /*takes_program=*/true, /*words=*/0, run_program},
    {"list", "List the GPUs that you may ask for.", "list [--json]",
     "  headrace list\n"
     "  headrace list --json\n",
     list_options, false, 0, list_gpus},
    {"smi", "Show the GPUs of your reservation, and what is taken of them.",
     "smi [-L | -q | --json | --query-gpu=FIELDS --format=csv] [-i GPU]",
     "  headrace run -m 2GiB -- headrace smi\n"
     "  headrace smi -L\n"
     "  headrace smi --query-gpu=index,name,memory.used,memory.total --format=csv,noheader\n",
     smi_options, false, 0, show_smi},
    {"version", "Show the version.", "version [--json]", "  headrace version\n", version_options,
     false, 0, show_version},
    {"help",
     "Explain a command.",
     "help [COMMAND]",
     "  headrace help run\n",
     {},
     false,
     1,
     show_help},
};

}  // namespace

std::span<const Command> commands() { return table; }

int complain(const std::string& what, const Error& error, int code) {
  std::fprintf(stderr, "headrace: %s: %s\n", what.c_str(), error.text.c_str());
  if (!error.hint.empty()) std::fprintf(stderr, "  → %s\n", error.hint.c_str());
  return code;
}

int show_version(const Values& values, const std::vector<std::string>&) {
  if (values.contains("json")) {
    std::printf("{\"schema\": \"headrace.version/1\", \"client\": \"0.1.0\", \"protocol\": %u}\n",
                unsigned{protocol::version});
  } else {
    std::printf("headrace 0.1.0 (data protocol %u)\n", unsigned{protocol::version});
  }
  return exit_ok;
}

int show_help(const Values&, const std::vector<std::string>& rest) {
  std::vector<std::string> names;
  for (const Command& one : commands()) {
    if (!rest.empty() && rest[0] == one.name) {
      std::fputs(help_of(one).c_str(), stdout);
      return exit_ok;
    }
    names.emplace_back(one.name);
  }
  if (!rest.empty()) {
    const std::optional<std::string> meant = nearest(rest[0], names);
    return complain("help",
                    {ErrorKind::invalid_input, "no command \"" + rest[0] + "\"",
                     meant ? "headrace help " + *meant : "headrace help"},
                    exit_usage);
  }
  std::printf(
      "Run CUDA programs on GPUs of a pool.\n\n"
      "  headrace run -n 1 -m 8GiB -- python train.py\n\n"
      "commands:\n");
  for (const Command& one : commands()) std::printf("  %-9s %s\n", one.name, one.summary);
  std::printf("\nheadrace help COMMAND explains one.\n");
  return exit_ok;
}

}  // namespace headrace::launcher
