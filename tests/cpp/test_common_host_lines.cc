#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <vector>

#include "common/host_lines.h"

namespace headrace {
namespace {

// One side: memory that begins at any byte, and a shadow.
struct SideOfIt {
  std::vector<std::uint8_t> memory;
  std::vector<std::uint8_t> shadow;
  SharedBlock block;

  SideOfIt(std::size_t offset, std::size_t size) : memory(size + 256, 0xc5) {
    const std::uint64_t start =
        (reinterpret_cast<std::uint64_t>(memory.data()) + host_line - 1) / host_line * host_line;
    block.base = start + offset;
    block.size = size;
    shadow.resize(block.shadow_bytes());
    block.shadow = shadow.data();
    std::memset(bytes(), 0, size);
  }
  std::uint8_t* bytes() const { return reinterpret_cast<std::uint8_t*>(block.base); }
  std::size_t outside() const {  // bytes around the block that are not what they were
    std::size_t changed = 0;
    for (const std::uint8_t& byte : memory) {
      const std::uint64_t at = reinterpret_cast<std::uint64_t>(&byte);
      changed += (at < block.base || at >= block.base + block.size) && byte != 0xc5;
    }
    return changed;
  }
};

// Everything that has changed, in frames of at most `limit` bytes. The number of frames.
int send(const SideOfIt& from, const SideOfIt& to, std::size_t limit, std::uint64_t most) {
  int frames = 0;
  for (std::uint64_t line = 0; line < from.block.lines();) {
    Writer out;
    const std::uint64_t next = collect_lines(from.block, line, most, limit, out);
    REQUIRE(next <= from.block.lines());
    REQUIRE((next > line || !out.empty()));
    REQUIRE(out.size() <= limit);
    line = next;
    if (out.empty()) continue;
    ++frames;
    REQUIRE(apply_lines(to.block, out.view()));
  }
  return frames;
}

}  // namespace

TEST_CASE("both sides change bytes and see each other's, whatever the block's edges") {
  std::mt19937 random(7);
  for (const std::size_t offset : {0, 1, 7, 63}) {
    for (const std::size_t size : {1, 3, 64, 65, 127, 4096, 10'001}) {
      CAPTURE(offset);
      CAPTURE(size);
      SideOfIt one(offset, size), two(offset, size);
      std::vector<std::uint8_t> expected(size);
      for (int round = 0; round < 20; ++round) {
        // Each writes to bytes that the other leaves alone in this round.
        for (std::size_t i = 0; i < size; ++i) {
          if (random() % 3 != 0) continue;
          const std::uint8_t value = static_cast<std::uint8_t>(random());
          ((i + static_cast<std::size_t>(round)) % 2 == 0 ? one : two).bytes()[i] = value;
          expected[i] = value;
        }
        send(one, two, 4096, 50);
        send(two, one, 300, 7);
        REQUIRE(std::memcmp(one.bytes(), expected.data(), size) == 0);
        REQUIRE(std::memcmp(two.bytes(), expected.data(), size) == 0);
      }
      CHECK(one.outside() == 0);
      CHECK(two.outside() == 0);
      CHECK(send(one, two, 4096, 50) == 0);
      CHECK(send(two, one, 4096, 50) == 0);
    }
  }
}

TEST_CASE("one changed byte is one line of nine bytes") {
  SideOfIt one(0, 1 << 20);
  one.bytes()[777] = 1;
  Writer out;
  CHECK(collect_lines(one.block, 0, UINT64_MAX, 4096, out) == one.block.lines());
  CHECK(out.size() == host_run_header + 9);
}

TEST_CASE("lines that do not fit their block are refused") {
  SideOfIt one(5, 100);  // two lines: bytes 5 to 63, and 0 to 40
  const auto refused = [&](std::uint32_t first, std::uint32_t count, std::uint64_t mask,
                           std::size_t bytes) {
    Writer out;
    out.u32(first);
    out.u32(count);
    out.u64(mask);
    for (std::size_t i = 0; i < bytes; ++i) out.u8(1);
    const bool applied = apply_lines(one.block, out.view());
    CHECK(one.outside() == 0);
    return !applied;
  };
  CHECK_FALSE(refused(0, 1, 1ULL << 5, 1));
  CHECK_FALSE(refused(1, 1, 1ULL << 40, 1));
  CHECK(refused(0, 1, 1ULL << 4, 1));   // before the block
  CHECK(refused(1, 1, 1ULL << 41, 1));  // after it
  CHECK(refused(2, 1, 1, 1));
  CHECK(refused(UINT32_MAX, 1, 1, 1));
  CHECK(refused(0, 3, 1ULL << 5, 1));
  CHECK(refused(0, 0, 1ULL << 5, 1));
  CHECK(refused(0, 1, 0, 0));
  CHECK(refused(0, 1, 3ULL << 5, 1));  // a byte is missing
  CHECK(refused(0, 1, 1ULL << 5, 2));  // one too many: the start of a run
  CHECK_FALSE(apply_lines(one.block, std::vector<std::uint8_t>(3)));
  CHECK(apply_lines(one.block, {}));
}

}  // namespace headrace
