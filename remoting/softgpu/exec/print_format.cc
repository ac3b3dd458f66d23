#include "softgpu/exec/print_format.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace headrace::softgpu::exec {

namespace {

// Wider output than this helps nobody, and would cost the host its memory.
constexpr int kWidest = 4096;
constexpr std::size_t kMostFlags = 5;

bool one_of(char c, const char* set) {
  for (; *set != 0; ++set)
    if (*set == c) return true;
  return false;
}

int number(const char*& at) {
  int value = 0;
  for (; *at >= '0' && *at <= '9'; ++at) value = value > kWidest ? value : value * 10 + (*at - '0');
  return value > kWidest ? kWidest : value;
}

std::int64_t signed_value(const Conversion& conversion, std::uint64_t bits) {
  switch (conversion.length) {
    case 'H':
      return static_cast<std::int8_t>(bits);
    case 'h':
      return static_cast<std::int16_t>(bits);
    case 'l':
      return static_cast<std::int64_t>(bits);
    default:
      return static_cast<std::int32_t>(bits);
  }
}

std::uint64_t unsigned_value(const Conversion& conversion, std::uint64_t bits) {
  switch (conversion.length) {
    case 'H':
      return static_cast<std::uint8_t>(bits);
    case 'h':
      return static_cast<std::uint16_t>(bits);
    case 'l':
      return bits;
    default:
      return static_cast<std::uint32_t>(bits);
  }
}

// The host's own conversion, of the same flags, width and precision.
template <typename T>
void convert(std::string& out, const Conversion& conversion, const char* length, T value) {
  std::string format = "%";
  format += conversion.flags;
  if (conversion.width >= 0) format += std::to_string(conversion.width);
  if (conversion.precision >= 0) format += "." + std::to_string(conversion.precision);
  format += length;
  format += conversion.type;
  const int size = std::snprintf(nullptr, 0, format.c_str(), value);
  if (size <= 0) return;
  const std::size_t before = out.size();
  out.resize(before + static_cast<std::size_t>(size) + 1);
  std::snprintf(out.data() + before, static_cast<std::size_t>(size) + 1, format.c_str(), value);
  out.pop_back();
}

void append(std::string& out, const Conversion& conversion, const PrintArgument& argument) {
  if (conversion.floating()) {
    convert(out, conversion, "", std::bit_cast<double>(argument.bits));
  } else if (conversion.text()) {
    convert(out, conversion, "", argument.text != nullptr ? argument.text : "(null)");
  } else if (conversion.type == 'c') {
    convert(out, conversion, "", static_cast<int>(argument.bits));
  } else if (conversion.type == 'p') {
    convert(out, conversion, "", reinterpret_cast<const void*>(argument.bits));
  } else if (conversion.type == 'd' || conversion.type == 'i') {
    convert(out, conversion, "ll", static_cast<long long>(signed_value(conversion, argument.bits)));
  } else {
    convert(out, conversion, "ll",
            static_cast<unsigned long long>(unsigned_value(conversion, argument.bits)));
  }
}

}  // namespace

bool Conversion::floating() const { return one_of(type, "eEfFgGaA"); }

bool Conversion::wide() const {
  return floating() || type == 's' || type == 'p' || (length == 'l' && type != 'c');
}

const char* parse_conversion(const char* at, Conversion& conversion) {
  conversion = {};
  std::size_t flags = 0;
  while (one_of(*at, "#0- +")) {
    if (flags < kMostFlags) conversion.flags[flags++] = *at;
    ++at;
  }
  if (*at == '*') {
    conversion.width_argument = true;
    ++at;
  } else if (*at >= '1' && *at <= '9') {
    conversion.width = number(at);
  }
  if (*at == '.') {
    ++at;
    if (*at == '*') {
      conversion.precision_argument = true;
      ++at;
    } else {
      conversion.precision = number(at);
    }
  }
  if (*at == 'h') {
    conversion.length = 'h';
    if (*++at == 'h') {
      conversion.length = 'H';
      ++at;
    }
  } else if (one_of(*at, "lzjt")) {
    conversion.length = 'l';
    if (*at == 'l' && at[1] == 'l') ++at;
    ++at;
  }
  if (*at == 0 || !one_of(*at, "%cdiouxXpsaAeEfFgG")) return nullptr;
  conversion.type = *at;
  return at + 1;
}

std::string format_print(const char* format, std::span<const PrintArgument> arguments) {
  std::string out;
  std::size_t next = 0;
  auto argument = [&] { return next < arguments.size() ? arguments[next++] : PrintArgument{}; };
  while (*format != 0) {
    Conversion conversion;
    const char* behind = *format == '%' ? parse_conversion(format + 1, conversion) : nullptr;
    if (behind == nullptr) {
      out += *format++;
      continue;
    }
    format = behind;
    if (conversion.type == '%') {
      out += '%';
      continue;
    }
    if (conversion.width_argument) {
      const int width = static_cast<int>(argument().bits);
      if (width < 0) conversion.flags[std::strlen(conversion.flags)] = '-';
      conversion.width = std::min(std::abs(std::max(width, -kWidest)), kWidest);
    }
    if (conversion.precision_argument)
      conversion.precision = std::min(static_cast<int>(argument().bits), kWidest);
    append(out, conversion, argument());
  }
  return out;
}

}  // namespace headrace::softgpu::exec
