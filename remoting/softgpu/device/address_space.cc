#include "remoting/softgpu/device/address_space.h"

#include <sys/mman.h>
#include <sys/random.h>

namespace headrace::softgpu {
namespace {

// Below the place where a process with an unlimited stack has its mappings.
constexpr std::uint64_t kRegionLow = 0x2000'0000'0000, kRegionHigh = 0x2a00'0000'0000;
constexpr std::uint64_t kAlignment = std::uint64_t{2} << 20;
constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

}  // namespace

void* reserve_addresses(std::uint64_t bytes) {
  constexpr int kTries = 8;
  for (int i = 0; i < kTries && bytes < kRegionHigh - kRegionLow; ++i) {
    std::uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) != sizeof random) break;
    const std::uint64_t places = (kRegionHigh - kRegionLow - bytes) / kAlignment;
    void* wanted = reinterpret_cast<void*>(kRegionLow + random % (places + 1) * kAlignment);
    void* at = mmap(wanted, bytes, PROT_NONE, kFlags | MAP_FIXED_NOREPLACE, -1, 0);
    if (at == wanted) return at;
    if (at != MAP_FAILED) munmap(at, bytes);  // a kernel without MAP_FIXED_NOREPLACE
  }
  void* at = mmap(nullptr, bytes, PROT_NONE, kFlags, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

}  // namespace headrace::softgpu
