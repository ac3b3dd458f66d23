#include "client/device_addresses.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace headrace::client {
namespace {

constexpr std::uint64_t page = 4096;
constexpr std::uint64_t chunk = std::uint64_t{2} << 20;  // drivers map device memory in these

std::uint64_t down(std::uint64_t value, std::uint64_t unit) { return value / unit * unit; }
std::uint64_t up(std::uint64_t value, std::uint64_t unit) { return down(value + unit - 1, unit); }

// False only when something is there: without room for more mappings, or under a limit on the
// address space, things are as they would be without us.
bool reserve(std::uint64_t low, std::uint64_t high) {
  void* const wanted = reinterpret_cast<void*>(low);
  void* const at = mmap(wanted, high - low, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (at == MAP_FAILED) return errno != EEXIST;
  if (at == wanted) return true;
  munmap(at, high - low);  // a kernel that takes the flag for a hint
  return false;
}

}  // namespace

bool DeviceAddresses::keep_free(std::uint64_t base, std::uint64_t size) {
  if (size == 0 || base > UINT64_MAX / 2 || size > UINT64_MAX / 2) return true;
  const std::lock_guard<std::mutex> lock(mutex_);
  // Whole chunks, so that small allocations cost one mapping together; else the pages alone.
  return take(down(base, chunk), up(base + size, chunk)) ||
         take(down(base, page), up(base + size, page));
}

bool DeviceAddresses::take(std::uint64_t low, std::uint64_t high) {
  auto next = kept_.upper_bound(low);
  if (next != kept_.begin() && std::prev(next)->second > low) --next;
  std::uint64_t at = low;
  while (at < high) {
    const bool kept = next != kept_.end() && next->first <= at;
    if (kept) {
      at = std::max(at, next->second);
      ++next;
      continue;
    }
    const std::uint64_t end = next == kept_.end() ? high : std::min(high, next->first);
    if (!reserve(at, end)) return false;
    next = std::next(kept_.insert_or_assign(at, end).first);
    at = end;
  }
  return true;
}

}  // namespace headrace::client
