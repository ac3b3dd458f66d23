// Commands and options as data: the same rows make the parser and the help.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/errors.h"

namespace headrace::launcher {

struct Option {
  const char* name;      // long, without dashes
  char letter;           // 0: none
  const char* argument;  // what its value is called in the help; null: takes none
  const char* help;
};

// Values given, by long name; the empty string for options without a value.
using Values = std::map<std::string, std::string, std::less<>>;

struct Command {
  const char* name;
  const char* summary;
  const char* usage;     // after "headrace"
  const char* examples;  // lines; help leads with them
  std::span<const Option> options;
  bool takes_program;  // the rest of the line belongs to somebody else
  unsigned words;      // that it takes besides options, at most; of no meaning with a program
  int (*run)(const Values& values, const std::vector<std::string>& rest);
};

// Reads the words after the command's name. Options end at `--`, or at the first other word where a
// program follows.
Result<Values> parse_options(const Command& command, const std::vector<std::string>& words,
                             std::vector<std::string>& rest);

std::string help_of(const Command& command);

// The nearest of `names` if it is near enough to be meant.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& names);

}  // namespace headrace::launcher
