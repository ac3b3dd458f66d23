#include "softgpu/exec/device_heap.h"

#include <exception>
#include <iterator>

namespace headrace::softgpu {

namespace {
constexpr std::uint64_t kGranule = 16;
}

DeviceHeap::DeviceHeap(std::uint64_t base, std::uint64_t bytes) : base_(base) {
  if (bytes != 0) free_[base] = bytes;
}

std::uint64_t DeviceHeap::allocate(std::uint64_t bytes) noexcept {
  if (bytes == 0 || bytes > UINT64_MAX - kGranule) return 0;
  bytes = (bytes + kGranule - 1) & ~(kGranule - 1);
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    if (at->second < bytes) continue;
    const auto [address, size] = *at;
    try {
      used_[address] = bytes;
      if (size > bytes) free_[address + bytes] = size - bytes;
    } catch (const std::exception&) {  // no host memory for the books
      used_.erase(address);
      return 0;
    }
    free_.erase(address);
    return address;
  }
  return 0;
}

bool DeviceHeap::release(std::uint64_t address) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  auto used = used_.find(address);
  if (used == used_.end()) return false;
  auto node = used_.extract(used);  // moved, not copied: releasing needs no memory
  auto here = free_.insert(std::move(node)).position;
  auto next = std::next(here);
  if (next != free_.end() && here->first + here->second == next->first) {
    here->second += next->second;
    free_.erase(next);
  }
  if (here != free_.begin()) {
    auto before = std::prev(here);
    if (before->first + before->second == here->first) {
      before->second += here->second;
      free_.erase(here);
    }
  }
  return true;
}

}  // namespace headrace::softgpu
