// The heap of malloc in kernels: parts of one range of device memory. What is in use is remembered
// outside of it, where no kernel can spoil it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace headrace::softgpu {

class DeviceHeap {
 public:
  // [base, base + bytes) is the caller's, and stays valid while kernels run.
  DeviceHeap(std::uint64_t base, std::uint64_t bytes);
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  // An address that is a multiple of 16, or 0 when there is no room. Zero bytes: 0, too.
  std::uint64_t allocate(std::uint64_t bytes) noexcept;
  // False when the address is not of an allocation.
  bool release(std::uint64_t address) noexcept;
  std::uint64_t base() const { return base_; }

 private:
  const std::uint64_t base_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> free_;  // address -> bytes; neighbours are merged
  std::map<std::uint64_t, std::uint64_t> used_;
};

}  // namespace headrace::softgpu
