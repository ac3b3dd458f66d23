// Conversions of a format string of device printf: which arguments it takes, and its text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace headrace::softgpu::exec {

// "%-5.*ld" without the sign. Width and precision of -1: none.
struct Conversion {
  char flags[8] = {};  // five, and room for one that a width argument adds
  int width = -1, precision = -1;
  bool width_argument = false, precision_argument = false;
  char length = 0;  // 'H' hh, 'h', 'l' (also ll, z, j, t), 0
  char type = 0;    // '%' takes no argument

  bool floating() const;
  bool text() const { return type == 's'; }
  bool wide() const;  // its argument has 8 bytes, otherwise 4
};

// Reads a conversion behind its '%'. Returns the place behind it, or null when it is none. Safe to
// be dropped at any point: calls nothing.
const char* parse_conversion(const char* at, Conversion& conversion);

struct PrintArgument {
  std::uint64_t bits = 0;
  const char* text = nullptr;  // of %s
};

// The text. What is no conversion is printed as it stands.
std::string format_print(const char* format, std::span<const PrintArgument> arguments);

}  // namespace headrace::softgpu::exec
