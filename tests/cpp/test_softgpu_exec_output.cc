// printf, assert, malloc and free of kernels, as the runtime serves them.
#include <doctest/doctest.h>

#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "softgpu/exec/print_format.h"
#include "softgpu_exec_kernels.h"

using namespace headrace::softgpu;
using namespace softgpu_test;
using exec::PrintArgument;

namespace {

struct Words : KernelOutput {
  void print(std::string_view text) noexcept override { add(printed, text); }
  void assertion(std::string_view text) noexcept override { add(asserted, text); }
  void add(std::string& to, std::string_view text) {
    std::lock_guard<std::mutex> lock(mutex);
    to += text;
  }
  std::mutex mutex;
  std::string printed, asserted;
};

// What a test takes for device memory.
struct Arena {
  alignas(64) std::uint8_t bytes[4096] = {};
  std::uint64_t text(std::size_t at, const char* value) {
    std::strcpy(reinterpret_cast<char*>(bytes) + at, value);
    return address(bytes) + at;
  }
  template <typename T>
  void put(std::size_t at, T value) {
    std::memcpy(bytes + at, &value, sizeof(value));
  }
  Window window() const { return {address(bytes), address(bytes) + sizeof(bytes)}; }
};

// Lanes 1 and 3 print; the numbers of arguments go to the third parameter's address.
void print_in_two_lanes(sg_warp_env* env) {
  std::uint64_t formats[32], arguments[32];
  std::int32_t results[32] = {};
  for (int lane = 0; lane < 32; ++lane) {
    formats[lane] = param<std::uint64_t>(env, 0);
    arguments[lane] = param<std::uint64_t>(env, 1);
  }
  formats[4] = 0;
  env->services->print(env, 0b11010, formats, arguments, results);
  std::memcpy(reinterpret_cast<void*>(param<std::uint64_t>(env, 2)), results, sizeof(results));
}

void fail_in_two_lanes(sg_warp_env* env) {
  if (env->warp != 1) return;
  std::uint64_t messages[32], files[32], functions[32];
  std::uint32_t lines[32];
  for (int lane = 0; lane < 32; ++lane) {
    messages[lane] = param<std::uint64_t>(env, 0);
    files[lane] = param<std::uint64_t>(env, 1);
    functions[lane] = param<std::uint64_t>(env, 2);
    lines[lane] = 17;
  }
  env->services->assert_fail(env, 0b101, messages, files, lines, functions);
}

// Every lane takes its index in bytes; what it got is written down and, in odd lanes, given back.
void use_heap(sg_warp_env* env) {
  std::uint64_t sizes[32], addresses[32];
  for (std::uint64_t lane = 0; lane < 32; ++lane) sizes[lane] = lane;
  env->services->allocate(env, ~0u, sizes, addresses);
  std::memcpy(reinterpret_cast<void*>(param<std::uint64_t>(env, 0)), addresses, sizeof(addresses));
  env->services->release(env, 0xaaaaaaaau, addresses);
}

void release_one(sg_warp_env* env) {
  std::uint64_t addresses[32] = {param<std::uint64_t>(env, 0)};
  env->services->release(env, 1, addresses);
}

std::string formatted(const char* format, std::vector<PrintArgument> arguments = {}) {
  return exec::format_print(format, arguments);
}

PrintArgument number(std::uint64_t bits) { return {bits, nullptr}; }
PrintArgument real(double value) {
  PrintArgument argument;
  std::memcpy(&argument.bits, &value, sizeof(value));
  return argument;
}

}  // namespace

TEST_CASE("a kernel's printf arrives lane by lane") {
  Arena arena;
  Words words;
  const std::uint64_t format = arena.text(0, "%d|%5.2f|%s|%lld|%c|%%|%*d|%u\n");
  arena.put<std::int32_t>(1024, -7);
  arena.put<double>(1032, 2.5);
  arena.put<std::uint64_t>(1040, arena.text(512, "text"));
  arena.put<std::int64_t>(1048, std::int64_t{1} << 40);
  arena.put<std::int32_t>(1056, 'x');
  arena.put<std::int32_t>(1060, 4);
  arena.put<std::int32_t>(1064, 9);
  arena.put<std::uint32_t>(1068, 0xffffffffu);
  const std::uint64_t results = address(arena.bytes) + 2048;
  TestLaunch launch(print_in_two_lanes, {}, {32}, {format, address(arena.bytes) + 1024, results});
  launch.launch.arena = arena.window();
  launch.launch.output = &words;
  REQUIRE(launch.run().ok());
  const std::string line = "-7| 2.50|text|1099511627776|x|%|   9|4294967295\n";
  CHECK(words.printed == line + line);
  std::int32_t counts[32];
  std::memcpy(counts, arena.bytes + 2048, sizeof(counts));
  CHECK(counts[1] == 8);
  CHECK(counts[3] == 8);
  CHECK(counts[4] == -1);
  launch.launch.output = nullptr;
  CHECK(launch.run().ok());
}

TEST_CASE("printf reads device memory only") {
  Arena arena, foreign;
  Words words;
  const std::uint64_t results = address(arena.bytes) + 2048;
  const std::uint64_t format = arena.text(0, "%s");
  arena.put<std::uint64_t>(1024, foreign.text(0, "secret"));
  std::memset(arena.bytes + 4000, 'a', 96);  // a text without an end
  for (const std::vector<std::uint64_t>& parameters :
       {std::vector<std::uint64_t>{foreign.text(0, "x"), 0, results},
        std::vector<std::uint64_t>{format, 0, results},
        std::vector<std::uint64_t>{format, address(foreign.bytes), results},
        std::vector<std::uint64_t>{format, address(arena.bytes) + 1024, results},
        std::vector<std::uint64_t>{address(arena.bytes) + 4000, 0, results}}) {
    TestLaunch launch(print_in_two_lanes, {}, {32}, parameters);
    launch.launch.arena = arena.window();
    launch.launch.output = &words;
    CHECK(launch.run().status == LaunchStatus::illegal_address);
  }
  CHECK(words.printed.empty());
}

TEST_CASE("a failed assertion names place and thread, and ends the launch") {
  Arena arena;
  Words words;
  TestLaunch launch(
      fail_in_two_lanes, {2, 1, 1}, {8, 8, 1},
      {arena.text(0, "a < b"), arena.text(64, "file.cu"), arena.text(128, "void kernel()")});
  launch.launch.arena = arena.window();
  launch.launch.output = &words;
  CHECK(launch.run(1).status == LaunchStatus::assertion);
  CHECK(words.asserted ==
        "file.cu:17: void kernel(): block: [0,0,0], thread: [0,4,0] Assertion `a < b` failed.\n"
        "file.cu:17: void kernel(): block: [0,0,0], thread: [2,4,0] Assertion `a < b` failed.\n");
}

TEST_CASE("kernels allocate from the heap, and give back") {
  Arena arena;
  constexpr std::uint64_t kBase = 1 << 20;  // never touched: the books lie elsewhere
  DeviceHeap heap(kBase, 1024);
  TestLaunch launch(use_heap, {}, {32}, {address(arena.bytes)});
  launch.launch.arena = arena.window();
  CHECK(launch.run().ok());  // without a heap nothing is given, and nothing is lost
  CHECK(std::string(reinterpret_cast<char*>(arena.bytes), 256) == std::string(256, '\0'));
  launch.launch.heap = &heap;
  REQUIRE(launch.run().ok());
  std::uint64_t got[32];
  std::memcpy(got, arena.bytes, sizeof(got));
  CHECK(got[0] == 0);  // malloc(0)
  std::set<std::uint64_t> starts;
  for (int lane = 1; lane < 32; ++lane) {
    CHECK(got[lane] % 16 == 0);
    CHECK(got[lane] >= kBase);
    CHECK(got[lane] + 32 <= kBase + 1024);
    starts.insert(got[lane]);
  }
  CHECK(starts.size() == 31);
  TestLaunch twice(release_one, {}, {32}, {got[2]});
  twice.launch.heap = &heap;
  CHECK(twice.run().ok());
  const LaunchResult again = twice.run();
  CHECK(again.status == LaunchStatus::illegal_address);
  CHECK(again.address == got[2]);
}

TEST_CASE("the heap joins what is given back, and refuses what does not fit") {
  DeviceHeap heap(4096, 96);
  CHECK(heap.allocate(97) == 0);
  CHECK(heap.allocate(UINT64_MAX) == 0);
  const std::uint64_t a = heap.allocate(32), b = heap.allocate(20), c = heap.allocate(32);
  CHECK(a == 4096);
  CHECK(b == 4128);
  CHECK(c == 4160);
  CHECK(heap.allocate(1) == 0);
  CHECK(heap.release(a));
  CHECK(heap.release(c));
  CHECK(heap.allocate(64) == 0);
  CHECK(heap.release(b));
  CHECK(!heap.release(b));
  CHECK(!heap.release(a + 16));
  CHECK(heap.allocate(96) == 4096);
}

TEST_CASE("conversions are those of C") {
  CHECK(formatted("no arguments, 100%%, %") == "no arguments, 100%, %");
  CHECK(formatted("%hhd %hd %d %ld", {number(0x1ff), number(0x18000), number(0xffffffffffffffff),
                                      number(0xffffffffffffffff)}) == "-1 -32768 -1 -1");
  CHECK(formatted("%hhu %hx %u %llu",
                  {number(0x1ff), number(0x12345), number(0x1ffffffff), number(UINT64_MAX)}) ==
        "255 2345 4294967295 18446744073709551615");
  CHECK(formatted("%#o|%+d|% d|%05d|%-5d|", {number(8), number(3), number(3), number(3),
                                             number(3)}) == "010|+3| 3|00003|3    |");
  CHECK(formatted("%e %G %.3a %F", {real(1.5), real(1e-9), real(1), real(2)}) ==
        "1.500000e+00 1E-09 0x1.000p+0 2.000000");
  CHECK(formatted("%*d|%.*f|", {number(static_cast<std::uint32_t>(-4)), number(7), number(1),
                                real(2.25)}) == "7   |2.2|");
  CHECK(formatted("%.2s|%8s|%s", {{1, "abc"}, {1, "abc"}, {0, nullptr}}) == "ab|     abc|(null)");
  CHECK(formatted("%d %q %n %y", {number(1)}) == "1 %q %n %y");
  CHECK(formatted("%d %d", {number(1)}) == "1 0");  // never more than was given
  CHECK(formatted("%99999999d", {number(1)}).size() == 4096);
}
