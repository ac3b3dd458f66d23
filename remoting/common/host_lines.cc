#include "common/host_lines.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace headrace {
namespace {

constexpr std::size_t words = host_line / 8;
constexpr std::uint64_t glance = 64;  // lines that are compared at once

// Atomic, because the peer's program or a kernel may be writing: a word is then old or new.
std::uint64_t load_word(const std::uint8_t* at) {
  return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(at), __ATOMIC_RELAXED);
}

// A bit for each byte in which the words differ.
std::uint64_t differing_bytes(std::uint64_t a, std::uint64_t b) {
  std::uint64_t bits = a ^ b;
  bits |= bits >> 4;
  bits |= bits >> 2;
  bits |= bits >> 1;
  bits &= 0x0101010101010101;
  return (bits * 0x0102040810204080) >> 56;
}

// All bits of the bytes that have a bit in `mask`.
std::uint64_t spread(std::uint64_t mask) {
  std::uint64_t out = 0;
  for (unsigned i = 0; i < 8; ++i) {
    if ((mask >> i & 1) != 0) out |= std::uint64_t{0xff} << (8 * i);
  }
  return out;
}

// Which bytes of a line are the block's.
std::uint64_t own_bytes(const SharedBlock& block, std::uint64_t line) {
  std::uint64_t mask = ~std::uint64_t{0};
  const std::uint64_t start = block.first_line() + line * host_line;
  if (start < block.base) mask &= ~std::uint64_t{0} << (block.base - start);
  const std::uint64_t left = block.base + block.size - start;
  if (left < host_line) mask &= ~(~std::uint64_t{0} << left);
  return mask;
}

std::uint8_t* at_address(std::uint64_t address) { return reinterpret_cast<std::uint8_t*>(address); }

// The line as it is at this moment; what is not the block's is taken from the shadow.
void snapshot(const std::uint8_t* memory, const std::uint8_t* shadow, std::uint64_t own,
              std::uint8_t* out) {
  if (own == ~std::uint64_t{0}) {
    for (std::size_t i = 0; i < words; ++i) {
      const std::uint64_t word = load_word(memory + i * 8);
      std::memcpy(out + i * 8, &word, sizeof word);
    }
    return;
  }
  for (std::size_t i = 0; i < host_line; ++i) {
    out[i] = (own >> i & 1) != 0 ? __atomic_load_n(memory + i, __ATOMIC_RELAXED) : shadow[i];
  }
}

std::uint64_t changed(const std::uint8_t* now, const std::uint8_t* shadow) {
  std::uint64_t mask = 0;
  for (std::size_t i = 0; i < words; ++i) {
    mask |= differing_bytes(load_word(now + i * 8), load_word(shadow + i * 8)) << (8 * i);
  }
  return mask;
}

// Writes the bytes of `mask` and leaves the others as they are, even if they change meanwhile.
void write_word(std::uint8_t* at, std::uint64_t value, std::uint64_t mask) {
  std::uint64_t* const word = reinterpret_cast<std::uint64_t*>(at);
  const std::uint64_t bits = spread(mask);
  std::uint64_t present = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &present, (present & ~bits) | (value & bits), true,
                                      __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
  }
}

void write_line(std::uint8_t* memory, std::uint8_t* shadow, std::uint64_t own, std::uint64_t mask,
                const std::uint8_t* bytes) {
  for (std::size_t i = 0; i < host_line; ++i) {
    if ((mask >> i & 1) != 0) shadow[i] = *bytes++;
  }
  if (own == ~std::uint64_t{0}) {
    for (std::size_t i = 0; i < words; ++i) {
      const std::uint64_t part = mask >> (8 * i) & 0xff;
      if (part != 0) write_word(memory + i * 8, load_word(shadow + i * 8), part);
    }
    return;
  }
  for (std::size_t i = 0; i < host_line; ++i) {
    if ((mask >> i & 1) != 0) __atomic_store_n(memory + i, shadow[i], __ATOMIC_RELAXED);
  }
}

}  // namespace

std::uint64_t collect_lines(const SharedBlock& block, std::uint64_t from, std::uint64_t most,
                            std::size_t limit, Writer& out) {
  const std::uint64_t lines = block.lines();
  const std::uint64_t end = most < lines - from ? from + most : lines;
  const std::size_t full = out.size() + limit;
  const std::uint8_t* const memory = at_address(block.first_line());
  std::size_t count_at = 0;    // where the count of the run at hand is
  std::uint64_t run_next = 0;  // the line that would go on with it
  std::uint32_t run = 0;
  std::uint64_t line = from;
  const bool starts_whole = block.base % host_line == 0;
  const bool ends_whole = (block.base + block.size) % host_line == 0;
  while (line < end) {
    const std::uint64_t stop = std::min(end, line + glance);
    const bool whole = (line != 0 || starts_whole) && (stop != lines || ends_whole);
    if (whole && std::memcmp(memory + line * host_line, block.shadow + line * host_line,
                             (stop - line) * host_line) == 0) {
      line = stop;
      continue;
    }
    for (; line < stop; ++line) {
      std::uint8_t* const shadow = block.shadow + line * host_line;
      alignas(8) std::uint8_t now[host_line];
      snapshot(memory + line * host_line, shadow, own_bytes(block, line), now);
      const std::uint64_t mask = changed(now, shadow);
      if (mask == 0) continue;
      if (out.size() + host_run_header + max_host_line > full) return line;
      if (run == 0 || run_next != line) {
        out.u32(static_cast<std::uint32_t>(line));
        count_at = out.size();
        out.u32(0);
        run = 0;
      }
      out.u64(mask);
      for (std::size_t i = 0; i < host_line; ++i) {
        if ((mask >> i & 1) != 0) out.u8(now[i]);
      }
      std::memcpy(shadow, now, host_line);
      out.patch_u32(count_at, ++run);
      run_next = line + 1;
    }
  }
  return line;
}

bool apply_lines(const SharedBlock& block, std::span<const std::uint8_t> lines) {
  Reader reader(lines);
  while (reader.ok() && reader.remaining() != 0) {
    const std::uint64_t first = reader.u32();
    const std::uint64_t count = reader.u32();
    if (!reader.ok() || count == 0 || first >= block.lines() || count > block.lines() - first) {
      return false;
    }
    for (std::uint64_t line = first; line < first + count; ++line) {
      const std::uint64_t mask = reader.u64();
      const std::uint64_t own = own_bytes(block, line);
      const std::span<const std::uint8_t> bytes =
          reader.raw(static_cast<std::size_t>(std::popcount(mask)));
      if (!reader.ok() || mask == 0 || (mask & ~own) != 0) return false;
      write_line(at_address(block.first_line() + line * host_line), block.shadow + line * host_line,
                 own, mask, bytes.data());
    }
  }
  return reader.ok();
}

std::uint8_t* map_shadow(std::uint64_t bytes) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::uint8_t*>(at);
}

void unmap_shadow(std::uint8_t* shadow, std::uint64_t bytes) {
  if (shadow != nullptr) munmap(shadow, bytes);
}

}  // namespace headrace
