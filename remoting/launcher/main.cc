// headrace: the user's command on a client.
#include <signal.h>

#include <string>
#include <vector>

#include "launcher/commands.h"
#include "launcher/exit_codes.h"

namespace headrace::launcher {
namespace {

int main_of(std::vector<std::string> words) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h") {
    show_help({}, {});
    return words.empty() ? exit_usage : exit_ok;
  }
  if (words[0] == "--version") words[0] = "version";
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    names.emplace_back(command.name);
    if (words[0] != command.name) continue;
    std::vector<std::string> own(words.begin() + 1, words.end());
    if (!own.empty() && (own[0] == "--help" || own[0] == "-h")) {
      return show_help({}, {command.name});
    }
    std::vector<std::string> rest;
    const Result<Values> values = parse_options(command, own, rest);
    if (!values) {
      return complain(command.name, values.error(),
                      command.takes_program ? exit_launcher : exit_usage);
    }
    return command.run(*values, rest);
  }
  const std::optional<std::string> meant = nearest(words[0], names);
  return complain("no command \"" + words[0] + "\"",
                  {ErrorKind::invalid_input, "unknown",
                   meant ? "did you mean headrace " + *meant + "?" : "headrace help"},
                  exit_usage);
}

}  // namespace
}  // namespace headrace::launcher

int main(int argc, char** argv) {
  return headrace::launcher::main_of(std::vector<std::string>(argv + 1, argv + argc));
}
