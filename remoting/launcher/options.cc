#include "launcher/options.h"

#include <algorithm>
#include <numeric>

namespace headrace::launcher {
namespace {

std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t k = 0; k < to.size(); ++k) {
      const std::size_t replaced = diagonal + (from[i] == to[k] ? 0 : 1);
      diagonal = row[k + 1];
      row[k + 1] = std::min({replaced, row[k] + 1, row[k + 1] + 1});
    }
  }
  return row.back();
}

const Option* find_option(const Command& command, std::string_view word) {
  for (const Option& one : command.options) {
    if (word.starts_with("--") ? word.substr(2) == one.name
                               : word.size() == 2 && word[1] == one.letter) {
      return &one;
    }
  }
  return nullptr;
}

Error usage(const Command& command, const std::string& text, const std::string& hint = "") {
  return Error{ErrorKind::invalid_input, text,
               hint.empty() ? std::string("headrace help ") + command.name : hint};
}

Error unknown_option(const Command& command, const std::string& word) {
  std::vector<std::string> names;
  for (const Option& one : command.options) names.push_back(std::string("--") + one.name);
  const std::optional<std::string> meant = nearest(word, names);
  return usage(command, "unknown option " + word, meant ? "did you mean " + *meant + "?" : "");
}

}  // namespace

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& names) {
  std::optional<std::string> best;
  std::size_t least = 3;  // two slips of the finger
  for (const std::string& name : names) {
    const std::size_t here = distance(word, name);
    if (here < least && here < name.size()) {
      least = here;
      best = name;
    }
  }
  return best;
}

Result<Values> parse_options(const Command& command, const std::vector<std::string>& words,
                             std::vector<std::string>& rest) {
  Values values;
  std::size_t i = 0;
  for (; i < words.size(); ++i) {
    std::string word = words[i];
    if (word == "--") {
      ++i;
      break;
    }
    if (word.size() < 2 || word[0] != '-') {
      if (command.takes_program) break;
      rest.push_back(word);
      continue;
    }
    std::optional<std::string> value;
    if (word.starts_with("--")) {
      if (const std::size_t equals = word.find('='); equals != std::string::npos) {
        value = word.substr(equals + 1);
        word.resize(equals);
      }
    } else if (word.size() > 2) {
      value = word.substr(2);  // -n2
      word.resize(2);
    }
    const Option* option = find_option(command, word);
    if (option == nullptr) return unknown_option(command, word);
    if (option->argument == nullptr && value) {
      return usage(command, word + " takes no value");
    }
    if (option->argument != nullptr && !value) {
      if (++i == words.size()) return usage(command, word + " needs a " + option->argument);
      value = words[i];
    }
    // An empty value is a variable that was not set, and never a wish.
    if (option->argument != nullptr && value->empty()) {
      return usage(command, word + " needs a " + option->argument + ", not an empty word");
    }
    values[option->name] = value.value_or("");
  }
  rest.insert(rest.end(), words.begin() + static_cast<std::ptrdiff_t>(std::min(i, words.size())),
              words.end());
  if (!command.takes_program && rest.size() > command.words) {
    return usage(command, "does not take \"" + rest[command.words] + "\"");
  }
  return values;
}

std::string help_of(const Command& command) {
  std::string text = std::string(command.summary) + "\n\n" + command.examples +
                     "\nusage: headrace " + command.usage + "\n";
  if (command.options.empty()) return text;
  text += "\noptions:\n";
  for (const Option& one : command.options) {
    std::string left = one.letter != 0 ? std::string("  -") + one.letter + ", " : "      ";
    left += std::string("--") + one.name;
    if (one.argument != nullptr) left += std::string(" ") + one.argument;
    left.resize(std::max<std::size_t>(left.size() + 2, 26), ' ');
    text += left + one.help + "\n";
  }
  return text;
}

}  // namespace headrace::launcher
