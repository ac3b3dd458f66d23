// headrace list
#include <cstdio>

#include "launcher/commands.h"
#include "launcher/exit_codes.h"
#include "launcher/pool.h"
#include "launcher/sizes.h"
#include "launcher/text.h"

namespace headrace::launcher {
namespace {

void print_json(const protocol::ListReply& reply) {
  std::printf("{\"schema\": \"headrace.list/1\", \"gpus\": [");
  const char* between = "";
  for (const protocol::Gpu& gpu : reply.gpus) {
    std::printf(
        "%s\n  {\"server\": %s, \"name\": %s, \"memory_bytes\": %llu, \"free_bytes\": %llu, "
        "\"reservations\": %u, \"state\": %s, \"driver\": %s, \"cuda_version\": %d, "
        "\"software\": %s}",
        between, json_text(gpu.server).c_str(), json_text(gpu.name).c_str(),
        static_cast<unsigned long long>(gpu.memory_bytes),
        static_cast<unsigned long long>(gpu.free_bytes), gpu.reservations,
        json_text(gpu.state).c_str(), json_text(gpu.driver).c_str(), gpu.cuda_version,
        gpu.software ? "true" : "false");
    between = ",";
  }
  std::printf("\n]}\n");
}

void print_table(const protocol::ListReply& reply) {
  std::vector<std::vector<std::string>> rows = {
      {"SERVER", "GPU", "MEMORY", "FREE", "RESERVATIONS", "STATE", "DRIVER", "CUDA"}};
  for (const protocol::Gpu& gpu : reply.gpus) {
    const std::string cuda = std::to_string(gpu.cuda_version / 1000) + "." +
                             std::to_string(gpu.cuda_version % 1000 / 10);
    rows.push_back(
        {printable(gpu.server), printable(gpu.name) + (gpu.software ? " (software)" : ""),
         format_size(gpu.memory_bytes), format_size(gpu.free_bytes),
         std::to_string(gpu.reservations), printable(gpu.state), printable(gpu.driver), cuda});
  }
  std::fputs(format_rows(rows).c_str(), stdout);
}

}  // namespace

int list_gpus(const Values& values, const std::vector<std::string>&) {
  const Result<Config> config =
      load_config(value_or_empty(values, "config"), value_or_empty(values, "server"));
  if (!config) return complain("list", config.error(), exit_failed);
  Result<Pool> pool = Pool::connect(*config);
  if (!pool) return complain("list", pool.error(), exit_code_of(pool.error().kind));
  const Result<protocol::ListReply> reply = pool->list();
  if (!reply) return complain("list", reply.error(), exit_code_of(reply.error().kind));
  pool->close();
  if (values.contains("json")) {
    print_json(*reply);
  } else {
    print_table(*reply);
  }
  return exit_ok;
}

}  // namespace headrace::launcher
