// Bounded little-endian reads from bytes that nobody vouches for.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace headrace::driverabi {

using Bytes = std::span<const std::uint8_t>;

// True when [offset, offset + size) lies inside `total`, without overflow.
constexpr bool fits(std::uint64_t total, std::uint64_t offset, std::uint64_t size) {
  return offset <= total && size <= total - offset;
}

// A value at an offset; 0 when it is not wholly inside. Callers that must tell the difference
// check with fits() first.
template <typename T>
T load(Bytes bytes, std::uint64_t offset) {
  T value{};
  if (fits(bytes.size(), offset, sizeof(T))) {
    std::memcpy(&value, bytes.data() + offset, sizeof(T));
  }
  return value;
}

// A part of the bytes; empty when it is not wholly inside.
inline Bytes slice(Bytes bytes, std::uint64_t offset, std::uint64_t size) {
  return fits(bytes.size(), offset, size) ? bytes.subspan(offset, size) : Bytes{};
}

inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace headrace::driverabi
