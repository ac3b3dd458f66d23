// What the generated codecs (gen/messages.h, gen/calls.h) share: runs of fixed-size fields are
// stored and loaded with one bounds check for the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/bytes.h"

namespace headrace::codec {

// The caller made sure that the room or the bytes are there.
template <typename T>
inline void store(std::uint8_t*& at, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(at, &value, sizeof value);
  at += sizeof value;
}

template <typename T>
inline void load(const std::uint8_t*& at, T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(&value, at, sizeof value);
  at += sizeof value;
}

// A bool is 0 or 1 on the wire; false when it is neither.
inline bool load_bool(const std::uint8_t*& at, bool& value) {
  std::uint8_t byte = *at++;
  value = byte == 1;
  return byte <= 1;
}

// The count of a list of at most `limit` elements that take at least `element_size` bytes each; a
// count that the bytes left cannot hold fails before any memory is taken for it.
inline std::size_t read_count(Reader& reader, std::size_t limit, std::size_t element_size) {
  std::size_t count = reader.u32();
  if (count > limit || count * element_size > reader.remaining()) {
    reader.fail();
    return 0;
  }
  return count;
}

template <typename T>
inline void write_scalars(Writer& writer, const std::vector<T>& values) {
  writer.u32(static_cast<std::uint32_t>(values.size()));
  writer.raw(values.data(), values.size() * sizeof(T));
}

template <typename T>
inline void read_scalars(Reader& reader, std::size_t limit, std::vector<T>& values) {
  std::size_t count = read_count(reader, limit, sizeof(T));
  std::span<const std::uint8_t> bytes = reader.raw(count * sizeof(T));
  values.resize(count);
  if (count != 0 && bytes.size() == count * sizeof(T)) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
  }
}

// Well-formed UTF-8: no overlong form, no surrogate, nothing above U+10FFFF.
bool valid_utf8(std::string_view text);

// Reads one value; false, and `out` untouched, when anything is off. With `open`, bytes that are
// left over belong to a later version and are passed over.
template <typename T>
inline bool read_all(Reader& reader, T& out, bool open = false) {
  T value;
  value.read(reader);
  if (open ? !reader.ok() : !reader.finished()) return false;
  out = std::move(value);
  return true;
}

// Decodes a whole payload; false, and `out` untouched, when anything is off or left over.
template <typename T>
inline bool decode(std::span<const std::uint8_t> payload, T& out) {
  Reader reader(payload);
  return T::decode(reader, out);
}

}  // namespace headrace::codec
