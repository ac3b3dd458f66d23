#include "launcher/sizes.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace headrace::launcher {
namespace {

constexpr std::string_view letters = "KMGT";

Error bad_size(std::string_view text) {
  return Error{ErrorKind::invalid_input, "not an amount of memory: \"" + std::string(text) + "\"",
               "write 512MiB, 8GiB, or a number of bytes"};
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || !std::isfinite(number) || number <= 0) return bad_size(text);
  std::string unit;
  for (const char* at = end; at != text.data() + text.size(); ++at) {
    if (*at != ' ') unit += static_cast<char>(std::toupper(static_cast<unsigned char>(*at)));
  }
  double factor = 1;
  if (!unit.empty() && unit != "B") {
    const std::size_t power = letters.find(unit[0]);
    if (power == std::string_view::npos || (unit.size() > 1 && unit.substr(1) != "IB")) {
      return bad_size(text);
    }
    factor = std::ldexp(1.0, 10 * (static_cast<int>(power) + 1));
  }
  const double bytes = number * factor;
  if (bytes < 1 || bytes > std::ldexp(1.0, 60) || bytes != std::floor(bytes)) return bad_size(text);
  return static_cast<std::uint64_t>(bytes);
}

std::string format_size(std::uint64_t bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  const bool whole = value == std::floor(value) || value >= 100;
  std::snprintf(text, sizeof text, whole ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

}  // namespace headrace::launcher
