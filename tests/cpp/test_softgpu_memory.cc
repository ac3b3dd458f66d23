// Device memory of the software GPU, its chunks across processes, and what the settings say.
#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "folder.h"
#include "remoting/softgpu/device/chunk_store.h"
#include "remoting/softgpu/device/settings.h"
#include "remoting/softgpu/driver/device_memory.h"
#include "remoting/softgpu/driver/host_memory.h"

namespace softgpu = headrace::softgpu;
using softgpu::kChunkBytes;

namespace {

using headrace::tests::Folder;

std::unique_ptr<softgpu::ChunkStore> open_store(const std::string& folder, std::uint32_t chunks) {
  std::string why;
  std::unique_ptr<softgpu::ChunkStore> out =
      softgpu::ChunkStore::open(folder, 0, chunks * kChunkBytes, &why);
  CAPTURE(why);
  REQUIRE(out != nullptr);
  return out;
}

char* at(std::uint64_t address) { return reinterpret_cast<char*>(address); }

// Runs the body in a process of its own; true when it said so.
template <typename Body>
bool in_process(Body&& body, bool die = false) {
  pid_t child = fork();
  if (child == 0) {
    bool ok = body();
    if (die) raise(SIGKILL);
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return die ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("devices are declared") {
  const std::uint64_t gib = std::uint64_t{1} << 30;
  CHECK(softgpu::parse_devices("1x4GiB") == std::vector<std::uint64_t>{4 * gib});
  CHECK(softgpu::parse_devices("2x8GiB") == std::vector<std::uint64_t>{8 * gib, 8 * gib});
  CHECK(softgpu::parse_devices("512MiB") == std::vector<std::uint64_t>{gib / 2});
  CHECK(softgpu::parse_devices("1x1GiB,2x2GiB") ==
        std::vector<std::uint64_t>{gib, 2 * gib, 2 * gib});
  for (const char* wrong : {"", "4", "4GB", "x4GiB", "0x4GiB", "1x0GiB", "1x4GiB,", "1x4GiB;",
                            "-1x4GiB", "1x99999999TiB", "1000x1GiB", "1x1GiBy"}) {
    CAPTURE(wrong);
    CHECK(softgpu::parse_devices(wrong).empty());
  }
}

TEST_CASE("compute capabilities are known ones") {
  int major = 0, minor = 0;
  CHECK(softgpu::parse_compute_capability("8.0", &major, &minor));
  CHECK(major == 8);
  CHECK(softgpu::parse_compute_capability("120", &major, &minor));
  CHECK(major == 12);
  CHECK(minor == 0);
  for (const char* wrong : {"", "8", "8.7", "3.5", "eight", "1.2.3.4"}) {
    CHECK_FALSE(softgpu::parse_compute_capability(wrong, &major, &minor));
  }
}

TEST_CASE("allocation is exact, and freed memory keeps its content") {
  std::unique_ptr<softgpu::DeviceMemory> memory = softgpu::DeviceMemory::create(open_store("", 8));
  REQUIRE(memory != nullptr);
  CHECK(memory->total_bytes() == 8 * kChunkBytes);
  CHECK(memory->allocate(8 * kChunkBytes + 1, 1, 0, false) == 0);
  std::uint64_t all = memory->allocate(8 * kChunkBytes, 1, 0, false);
  REQUIRE(all != 0);
  CHECK(memory->free_bytes() == 0);
  CHECK(memory->allocate(1, 1, 0, false) == 0);
  std::memset(at(all), 0x5a, 8 * kChunkBytes);
  CHECK(memory->free(all));
  CHECK_FALSE(memory->free(all));
  std::uint64_t again = memory->allocate(8 * kChunkBytes, 1, 0, false);
  REQUIRE(again != 0);
  CHECK(at(again)[kChunkBytes] == 0x5a);
}

TEST_CASE("scattered chunks make one allocation") {
  std::unique_ptr<softgpu::DeviceMemory> memory = softgpu::DeviceMemory::create(open_store("", 6));
  std::uint64_t part[6];
  for (std::uint64_t& one : part) one = memory->allocate(kChunkBytes, 1, 0, false);
  for (int i : {0, 2, 4}) CHECK(memory->free(part[i]));
  std::uint64_t joined = memory->allocate(3 * kChunkBytes, 1, 0, false);
  REQUIRE(joined != 0);
  for (int i = 0; i < 3; ++i) at(joined)[i * kChunkBytes] = static_cast<char>(i + 1);
  for (int i = 0; i < 3; ++i) CHECK(at(joined)[i * kChunkBytes] == i + 1);
  CHECK(memory->contains(joined + 5, 3 * kChunkBytes - 5));
  CHECK_FALSE(memory->contains(joined + 5, 3 * kChunkBytes));
}

TEST_CASE("small allocations share a chunk and give it back") {
  std::unique_ptr<softgpu::DeviceMemory> memory = softgpu::DeviceMemory::create(open_store("", 2));
  std::vector<std::uint64_t> all;
  for (int i = 0; i < 1000; ++i) {
    std::uint64_t one = memory->allocate(100, 1, 0, false);
    REQUIRE(one != 0);
    CHECK(one % 512 == 0);
    all.push_back(one);
  }
  CHECK(memory->free_bytes() == kChunkBytes);
  for (std::size_t i = 0; i < all.size(); i += 2) CHECK(memory->free(all[i]));
  for (std::size_t i = 1; i < all.size(); i += 2) CHECK(memory->free(all[i]));
  CHECK(memory->free_bytes() == 2 * kChunkBytes);
}

TEST_CASE("a context's allocations go together") {
  std::unique_ptr<softgpu::DeviceMemory> memory = softgpu::DeviceMemory::create(open_store("", 4));
  std::uint64_t kept = memory->allocate(1000, 2, 0, false);
  memory->allocate(2000, 1, 0, false);
  memory->allocate(kChunkBytes, 1, 0, true);
  memory->free_all_of(1);
  softgpu::Allocation entry;
  CHECK(memory->find(kept + 999, &entry));
  CHECK(entry.base == kept);
  CHECK_FALSE(memory->find(kept + 1000, &entry));
  CHECK(memory->free_bytes() == 3 * kChunkBytes);
}

TEST_CASE("processes share a device's memory, and the dead give theirs back") {
  Folder folder;
  std::unique_ptr<softgpu::ChunkStore> store = open_store(folder.path, 4);
  std::vector<std::uint32_t> mine, more;
  REQUIRE(store->take(1, &mine));
  CHECK(in_process([&] {
    std::unique_ptr<softgpu::ChunkStore> other = open_store(folder.path, 4);
    std::vector<std::uint32_t> theirs;
    return other->free_chunks() == 3 && !other->take(4, &theirs) && other->take(3, &theirs) &&
           other->usage().size() == 2;
  }));
  // It ended and its store was closed; the next one is killed while it holds memory.
  CHECK(store->free_chunks() == 3);
  CHECK(in_process(
      [&] {
        std::unique_ptr<softgpu::ChunkStore> other = open_store(folder.path, 4);
        std::vector<std::uint32_t> theirs;
        return other.release()->take(2, &theirs);
      },
      true));
  CHECK(store->free_chunks() == 3);
  CHECK(store->usage().size() == 1);
  REQUIRE(store->take(3, &more));
  CHECK(store->free_chunks() == 0);
}

TEST_CASE("content outlives its process") {
  Folder folder;
  CHECK(in_process([&] {
    std::unique_ptr<softgpu::DeviceMemory> memory =
        softgpu::DeviceMemory::create(open_store(folder.path, 2));
    std::uint64_t all = memory->allocate(2 * kChunkBytes, 1, 0, false);
    std::strcpy(at(all) + 77, "secret");
    return true;
  }));
  std::unique_ptr<softgpu::DeviceMemory> memory =
      softgpu::DeviceMemory::create(open_store(folder.path, 2));
  std::uint64_t all = memory->allocate(2 * kChunkBytes, 1, 0, false);
  REQUIRE(all != 0);
  CHECK(std::string(at(all) + 77) == "secret");
}

TEST_CASE("a state directory of another size is refused") {
  Folder folder;
  std::unique_ptr<softgpu::ChunkStore> store = open_store(folder.path, 4);
  std::string why;
  CHECK(softgpu::ChunkStore::open(folder.path, 0, 5 * kChunkBytes, &why) == nullptr);
  CHECK(why.find("another size") != std::string::npos);
}

TEST_CASE("pinned memory lies in one window; registered memory lies where it is") {
  softgpu::HostMemory host;
  std::uint64_t one = host.allocate(5000, 1, 0), two = host.allocate(1, 1, 0);
  std::uint64_t low = 0, high = 0;
  host.window(&low, &high);
  CHECK(one >= low);
  CHECK(two + 1 <= high);
  CHECK(host.contains(one + 10, 4990));
  CHECK_FALSE(host.contains(one + 10, 4991));
  char local[64];
  std::uint64_t address = reinterpret_cast<std::uint64_t>(local);
  CHECK(host.add_registered(address, sizeof local, 1, 0));
  CHECK_FALSE(host.add_registered(address + 10, 5, 1, 0));
  CHECK_FALSE(host.free(address));
  REQUIRE(host.registered().size() == 1);
  CHECK(host.registered()[0].low == address);
  CHECK(host.registered()[0].high == address + sizeof local);
  CHECK(host.remove_registered(address));
  CHECK(host.registered().empty());
  CHECK(host.free(one));
  CHECK_FALSE(host.remove_registered(two));
}
