// The client's shadow state: memory ranges, handles, visible devices, launch checks, JIT logs.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstring>
#include <string>
#include <vector>

#include "client/device_addresses.h"
#include "client/devices.h"
#include "client/jit_options.h"
#include "client/launches.h"
#include "client/memory_ranges.h"
#include "client/table.h"

namespace headrace::client {
namespace {

MemoryRange range_at(std::uint64_t base, std::uint64_t size, Context* context = nullptr,
                     RangeKind kind = RangeKind::device) {
  MemoryRange range;
  range.base = base;
  range.size = size;
  range.kind = kind;
  range.context = context;
  return range;
}

std::vector<protocol::Device> two_devices() {
  std::vector<protocol::Device> devices(2);
  devices[0].uuid.fill(0x11);
  devices[1].uuid.fill(0x12);
  return devices;
}

void set_limits(Device& device) {
  for (int i = 0; i < 3; ++i) {
    device.attributes[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i] = 65535;
    device.attributes[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i] = 1024;
  }
  device.attributes[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
}

}  // namespace

TEST_CASE("memory ranges: first, last, one past, neighbours, overlap") {
  MemoryRanges ranges;
  CHECK(ranges.insert(range_at(0x1000, 0x100)));
  CHECK(ranges.insert(range_at(0x1100, 0x100)));
  CHECK_FALSE(ranges.insert(range_at(0x10ff, 1)));
  CHECK_FALSE(ranges.insert(range_at(0xf00, 0x101)));
  CHECK(ranges.insert(range_at(0xf00, 0x100)));
  CHECK(ranges.find(0x1000)->base == 0x1000);
  CHECK(ranges.find(0x10ff)->base == 0x1000);
  CHECK(ranges.find(0x1100)->base == 0x1100);
  CHECK_FALSE(ranges.find(0x1200));
  CHECK_FALSE(ranges.find(0xeff));
  CHECK_FALSE(ranges.find(0));
  CHECK_FALSE(ranges.take(0x1001, RangeKind::device));
  CHECK_FALSE(ranges.take(0x1000, RangeKind::host_allocated));
  CHECK(ranges.take(0x1000, RangeKind::device));
  CHECK_FALSE(ranges.find(0x1000));
  CHECK(ranges.find(0x1100)->id != ranges.find(0xf00)->id);
}

TEST_CASE("memory ranges go with their context or module") {
  Device device;
  Context first(1, &device, false);
  Context second(2, &device, false);
  MemoryRanges ranges;
  CHECK(ranges.insert(range_at(0x1000, 0x10, &first)));
  CHECK(ranges.insert(range_at(0x2000, 0x10, &second)));
  MemoryRange global = range_at(0x3000, 0x10, &second);
  global.module = 7;
  CHECK(ranges.insert(global));
  CHECK(ranges.take_all_of(&first).size() == 1);
  CHECK_FALSE(ranges.find(0x1000));
  ranges.forget_module(7);
  CHECK_FALSE(ranges.find(0x3000));
  CHECK(ranges.find(0x2000));
}

TEST_CASE("handles carry their kind and are never reused") {
  HandleMaker maker;
  const std::uint64_t first = maker.make(HandleKind::event);
  CHECK(first == make_handle(HandleKind::event, 1));
  CHECK(maker.make(HandleKind::event) == make_handle(HandleKind::event, 2));
  CHECK(maker.make(HandleKind::stream) == make_handle(HandleKind::stream, 1));
  Table<int> table;
  table.insert(first, std::make_shared<int>(5));
  CHECK(*table.find(first) == 5);
  CHECK(table.find(2) == nullptr);
  CHECK(*table.take(first) == 5);
  CHECK(table.take(first) == nullptr);
}

TEST_CASE("CUDA_VISIBLE_DEVICES: order, UUIDs, what hides") {
  const std::vector<protocol::Device> devices = two_devices();
  using Order = std::vector<int>;
  CHECK(visible_devices(devices, nullptr) == Order{0, 1});
  CHECK(visible_devices(devices, "") == Order{});
  CHECK(visible_devices(devices, "1,0") == Order{1, 0});
  CHECK(visible_devices(devices, " 1 ") == Order{1});
  CHECK(visible_devices(devices, "0,-1,1") == Order{0});
  CHECK(visible_devices(devices, "0,7,1") == Order{0});
  CHECK(visible_devices(devices, "0,0") == Order{});
  CHECK(visible_devices(devices, "NoDevFiles") == Order{});
  CHECK(visible_devices(devices, "GPU-12") == Order{1});
  CHECK(visible_devices(devices, "gpu-1") == Order{});  // two begin so
  CHECK(visible_devices(devices, "GPU-") == Order{});
  CHECK(visible_devices(devices, uuid_text(devices[0].uuid.data()).c_str()) == Order{0});
  CHECK(uuid_text(devices[0].uuid.data()) == "GPU-11111111-1111-1111-1111-111111111111");
}

TEST_CASE("launches that the driver would reject are rejected at the call") {
  Device device;
  set_limits(device);
  Function function;
  const auto check = [&](unsigned gx, unsigned gz, unsigned bx, unsigned by, unsigned shared) {
    return check_shape(LaunchShape{{gx, 1, gz}, {bx, by, 1}, shared}, function, device);
  };
  CHECK(check(1, 1, 1024, 1, 0) == CUDA_SUCCESS);
  CHECK(check(0, 1, 32, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(check(1, 65536, 32, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(check(1, 1, 0, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(check(1, 1, 4096, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(check(1, 1, 64, 64, 0) == CUDA_ERROR_INVALID_VALUE);
  function.max_dynamic_shared = 1000;
  CHECK(check(1, 1, 32, 1, 1000) == CUDA_SUCCESS);
  CHECK(check(1, 1, 32, 1, 1001) == CUDA_ERROR_INVALID_VALUE);
  function.max_threads = 128;
  CHECK(check(1, 1, 129, 1, 0) != CUDA_SUCCESS);
}

TEST_CASE("parameter blocks: from pointers, ready ones, and what is refused") {
  Function function;
  function.params = {{0, 1}, {8, 8}, {16, 2}};
  function.param_bytes = 18;
  const char a = 'a';
  const double b = 2.5;
  const short c = 77;
  void* params[] = {const_cast<char*>(&a), const_cast<double*>(&b), const_cast<short*>(&c)};
  std::vector<std::uint8_t> storage(64, 0xff);
  std::span<const std::uint8_t> block;
  REQUIRE(lay_out(function, params, nullptr, storage, block) == CUDA_SUCCESS);
  REQUIRE(block.size() == 18);
  CHECK(block[0] == 'a');
  CHECK(block[1] == 0);  // a gap carries nothing
  CHECK(std::memcmp(block.data() + 8, &b, 8) == 0);
  CHECK(std::memcmp(block.data() + 16, &c, 2) == 0);

  std::uint8_t ready[24] = {1, 2, 3};
  std::size_t size = sizeof ready;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, ready, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  CHECK(lay_out(function, nullptr, extra, storage, block) == CUDA_SUCCESS);
  CHECK(block.data() == ready);
  CHECK(block.size() == 24);
  size = 17;
  CHECK(lay_out(function, nullptr, extra, storage, block) == CUDA_ERROR_INVALID_VALUE);
  size = max_param_bytes + 1;
  CHECK(lay_out(function, nullptr, extra, storage, block) == CUDA_ERROR_INVALID_VALUE);
  CHECK(lay_out(function, params, extra, storage, block) == CUDA_ERROR_INVALID_VALUE);
  CHECK(lay_out(function, nullptr, nullptr, storage, block) == CUDA_ERROR_INVALID_VALUE);
  params[1] = nullptr;
  CHECK(lay_out(function, params, nullptr, storage, block) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("JIT logs end inside their buffers and leave the rest alone") {
  char info[8];
  char error[1];
  std::memset(info, 0x5a, sizeof info);
  std::memset(error, 0x5a, sizeof error);
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_WALL_TIME};
  void* values[] = {info, reinterpret_cast<void*>(6), error, reinterpret_cast<void*>(1), nullptr};
  JitOptions jit;
  REQUIRE(jit.read(5, options, values) == CUDA_SUCCESS);
  CHECK(jit.wire().size() == 3);  // buffers do not travel, sizes do
  const std::string text = "a long log";
  const std::span<const std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(text.data()),
                                            text.size());
  jit.write_back(bytes, bytes, 1.5F);
  CHECK(std::string(info) == "a lon");
  CHECK(info[6] == 0x5a);
  CHECK(reinterpret_cast<std::uintptr_t>(values[1]) == 5);
  CHECK(error[0] == '\0');
  float wall = 0;
  std::memcpy(&wall, &values[4], sizeof wall);
  CHECK(wall == 1.5F);

  JitOptions bad;
  values[0] = nullptr;
  values[1] = reinterpret_cast<void*>(6);
  CHECK(bad.read(2, options, values) == CUDA_ERROR_INVALID_VALUE);
  CHECK(bad.read(1, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("addresses of device memory are kept free here, and those in use are told") {
  constexpr std::uint64_t chunk = std::uint64_t{2} << 20;
  constexpr std::uint64_t start = 0x2c00'0000'0000;  // nothing of a process is here by itself
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  const auto at = [](std::uint64_t address) { return reinterpret_cast<void*>(address); };
  const auto is_free = [&](std::uint64_t address) {
    void* const got = mmap(at(address), 4096, PROT_NONE, flags, -1, 0);
    if (got != MAP_FAILED) munmap(got, 4096);
    return got == at(address);
  };
  DeviceAddresses addresses;
  REQUIRE(is_free(start));
  CHECK(addresses.keep_free(start + 512, 512));
  CHECK_FALSE(is_free(start));
  CHECK_FALSE(is_free(start + chunk - 4096));
  CHECK(is_free(start + chunk));
  CHECK(addresses.keep_free(start + chunk - 512, 1024));  // half of it is kept already
  CHECK(addresses.keep_free(start, 4 * chunk));
  CHECK_FALSE(is_free(start + 3 * chunk));
  // The program's page in a chunk leaves room beside it.
  const std::uint64_t other = start + 16 * chunk;
  REQUIRE(mmap(at(other + 8192), 4096, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0) !=
          MAP_FAILED);
  CHECK(addresses.keep_free(other, 8192));
  CHECK_FALSE(addresses.keep_free(other + 8191, 2));
  CHECK_FALSE(addresses.keep_free(other - chunk, 3 * chunk));
  CHECK(addresses.keep_free(UINT64_MAX - 10, 5));
}

}  // namespace headrace::client
