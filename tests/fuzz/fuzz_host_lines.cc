// Changed lines of shared host memory (PROTOCOL.md §7.8). The first three bytes say where the block
// begins in its line and how long it is, the rest is what the other side has sent.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "common/host_lines.h"

namespace {

using namespace headrace;

constexpr std::uint8_t untouched = 0xc5;

void require(bool holds) {
  if (!holds) std::abort();
}

struct Side {
  std::vector<std::uint8_t> memory;
  SharedBlock block;

  Side(std::uint64_t offset, std::uint64_t size) : memory(size + 4 * host_line, untouched) {
    const std::uint64_t start = reinterpret_cast<std::uint64_t>(memory.data());
    block.base = (start + host_line - 1) / host_line * host_line + offset;
    block.size = size;
    block.shadow = map_shadow(block.shadow_bytes());
    require(block.shadow != nullptr);
    std::memset(bytes(), 0, size);
  }
  ~Side() { unmap_shadow(block.shadow, block.shadow_bytes()); }
  std::uint8_t* bytes() const { return reinterpret_cast<std::uint8_t*>(block.base); }
  void check_outside() const {
    for (const std::uint8_t& byte : memory) {
      const std::uint64_t at = reinterpret_cast<std::uint64_t>(&byte);
      require((at >= block.base && at < block.base + block.size) || byte == untouched);
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const std::uint64_t offset = data[0] % host_line;
  const std::uint64_t length = 1 + (data[1] | std::uint64_t{data[2]} << 8) % 9000;
  Side one(offset, length), two(offset, length);
  const bool fits = apply_lines(one.block, {data + 3, size - 3});
  one.check_outside();
  Writer out;
  // The sender has it all already, whether the end was well-formed or not.
  require(collect_lines(one.block, 0, UINT64_MAX, 1 << 20, out) == one.block.lines());
  require(out.empty());
  if (!fits) return 0;
  // A third side that has nothing yet gets the same from us.
  std::memset(one.block.shadow, 0, one.block.shadow_bytes());
  require(collect_lines(one.block, 0, UINT64_MAX, 1 << 20, out) == one.block.lines());
  require(apply_lines(two.block, out.view()));
  require(std::memcmp(one.bytes(), two.bytes(), length) == 0);
  two.check_outside();
  return 0;
}
