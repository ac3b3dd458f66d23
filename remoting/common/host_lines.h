// Host memory that lies at the same address on both sides of a connection (PROTOCOL.md §7.8): each
// side finds what has changed by comparing it with what the other side is known to have, and sends
// the changed bytes of 64-byte lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/bytes.h"

namespace headrace {

inline constexpr std::uint64_t host_line = 64;
// Of one encoded line: a mask and its bytes; a run of lines has a header before it.
inline constexpr std::size_t max_host_line = 8 + host_line;
inline constexpr std::size_t host_run_header = 8;

// A block and what the other side has of it. The block may begin and end within a line; bytes of
// these lines that are not its own are neither compared nor written. Programs and kernels write to
// it at any time: every word is read and written as one.
struct SharedBlock {
  std::uint64_t base = 0;
  std::uint64_t size = 0;
  std::uint8_t* shadow = nullptr;  // whole lines, so of shadow_bytes()

  std::uint64_t first_line() const { return base / host_line * host_line; }
  std::uint64_t lines() const { return (base % host_line + size + host_line - 1) / host_line; }
  std::uint64_t shadow_bytes() const { return lines() * host_line; }
};

// Appends changed lines from line `from` on, until `out` has grown by `limit` bytes or `most` lines
// were looked at, and notes in the shadow that the other side has them. The line to go on from;
// block.lines() when none is left.
std::uint64_t collect_lines(const SharedBlock& block, std::uint64_t from, std::uint64_t most,
                            std::size_t limit, Writer& out);

// Writes what the other side has sent to the block and its shadow. False: not well-formed, or
// outside the block; what came before that is written.
bool apply_lines(const SharedBlock& block, std::span<const std::uint8_t> lines);

// Maps zeroed memory for a shadow; null: there is none. It costs nothing until it is written.
std::uint8_t* map_shadow(std::uint64_t bytes);
void unmap_shadow(std::uint8_t* shadow, std::uint64_t bytes);

}  // namespace headrace
