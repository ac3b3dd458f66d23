// The launcher's command line and amounts of memory.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "launcher/commands.h"
#include "launcher/options.h"
#include "launcher/sizes.h"

namespace headrace::launcher {
namespace {

const Command& command(std::string_view name) {
  for (const Command& one : commands()) {
    if (name == one.name) return one;
  }
  FAIL("no such command");
  return commands()[0];
}

struct Parsed {
  Values values;
  std::vector<std::string> rest;
  std::string fault, hint;
};

Parsed parse(std::string_view name, const std::vector<std::string>& words) {
  Parsed parsed;
  Result<Values> values = parse_options(command(name), words, parsed.rest);
  if (values) {
    parsed.values = values.take();
  } else {
    parsed.fault = values.error().text;
    parsed.hint = values.error().hint;
  }
  return parsed;
}

TEST_CASE("options may be written in every usual way") {
  const std::vector<std::vector<std::string>> ways = {
      {"-n", "2", "-m", "8GiB", "--", "prog", "-n", "9"},
      {"-n2", "-m8GiB", "prog", "-n", "9"},
      {"--gpus=2", "--memory", "8GiB", "--", "prog", "-n", "9"},
  };
  for (const std::vector<std::string>& words : ways) {
    const Parsed parsed = parse("run", words);
    CHECK(parsed.fault == "");
    CHECK(parsed.values == Values{{"gpus", "2"}, {"memory", "8GiB"}});
    CHECK(parsed.rest == std::vector<std::string>{"prog", "-n", "9"});
  }
}

TEST_CASE("what is wrong is named, with what was probably meant") {
  CHECK(parse("run", {"--memroy", "1"}).hint == "did you mean --memory?");
  CHECK(parse("run", {"-x"}).fault == "unknown option -x");
  CHECK(parse("run", {"-n"}).fault == "-n needs a COUNT");
  CHECK(parse("list", {"--json=yes"}).fault == "--json takes no value");
  CHECK_FALSE(nearest("frobnicate", {"run", "list"}));
  CHECK(nearest("lsit", {"run", "list"}) == "list");
}

TEST_CASE("help has every option, and leads with examples") {
  for (const Command& one : commands()) {
    const std::string help = help_of(one);
    CHECK(help.find(one.examples) < help.find("usage:"));
    for (const Option& option : one.options) {
      CHECK(help.find(std::string("--") + option.name) != std::string::npos);
    }
  }
}

TEST_CASE("amounts of memory") {
  struct Case {
    const char* text;
    std::uint64_t bytes;
  };
  const Case good[] = {
      {"512MiB", 512ull << 20}, {"8GiB", 8ull << 30}, {"8G", 8ull << 30}, {"8g", 8ull << 30},
      {"1.5 GiB", 3ull << 29},  {"1024", 1024},       {"7b", 7},          {"2TiB", 2ull << 40}};
  for (const Case& one : good) {
    const Result<std::uint64_t> size = parse_size(one.text);
    REQUIRE(size);
    CHECK(*size == one.bytes);
  }
  for (const char* text :
       {"", "GiB", "8GB", "-1", "0", "1e400", "nan", "inf", "8 GiBs", "0.3", "1X", "99999999TiB"}) {
    INFO(text);
    CHECK_FALSE(parse_size(text));
  }
  CHECK(format_size(8ull << 30) == "8 GiB");
  CHECK(format_size(3ull << 29) == "1.5 GiB");
  CHECK(format_size(1000) == "1000 B");
}

}  // namespace
}  // namespace headrace::launcher
