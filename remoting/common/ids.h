// Handles as they travel (PROTOCOL.md §7.3): kind << 40 | serial. They look like user-space
// pointers, and every one is looked up and checked before use.
#pragma once

#include <cstdint>

namespace headrace {

enum class HandleKind : std::uint8_t {
  none = 0,
  context = 1,
  stream = 2,
  event = 3,
  module = 4,
  function = 5,
  library = 6,
  kernel = 7,
  memory_pool = 8,
  graph = 9,
  graph_exec = 10,
  graph_node = 11,
  array = 12,
  link_state = 13,
  allocation = 14,
  blob = 15,
  texture = 16,
  surface = 17,
  user_object = 18,
};

constexpr HandleKind last_handle_kind = HandleKind::user_object;
constexpr unsigned handle_serial_bits = 40;

constexpr std::uint64_t make_handle(HandleKind kind, std::uint64_t serial) {
  return (static_cast<std::uint64_t>(kind) << handle_serial_bits) | serial;
}

constexpr HandleKind handle_kind(std::uint64_t handle) {
  const std::uint64_t kind = handle >> handle_serial_bits;
  return kind <= static_cast<std::uint64_t>(last_handle_kind) ? static_cast<HandleKind>(kind)
                                                              : HandleKind::none;
}

constexpr std::uint64_t handle_serial(std::uint64_t handle) {
  return handle & ((std::uint64_t{1} << handle_serial_bits) - 1);
}

}  // namespace headrace
