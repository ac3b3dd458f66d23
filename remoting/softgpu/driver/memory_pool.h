// A stream-ordered memory pool. Memory is taken at the call and given back when its stream reaches
// the free; nothing is kept in reserve, so the pool is a name, its attributes and its counters.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace headrace::softgpu {

class MemoryPool {
 public:
  static std::shared_ptr<MemoryPool> make_default(CUdevice device) {
    return std::make_shared<MemoryPool>(device, true);
  }
  MemoryPool(CUdevice device, bool is_default) : device(device), is_default(is_default) {}

  std::uint64_t handle = 0;
  const CUdevice device;
  const bool is_default;

  std::mutex mutex;
  std::uint64_t release_threshold = 0;
  std::uint64_t max_size = 0;
  int reuse[3] = {1, 1, 1};  // follow events, opportunistic, internal dependencies
  std::uint64_t used = 0, used_high = 0;

  void took(std::uint64_t bytes) {
    std::lock_guard<std::mutex> guard(mutex);
    used += bytes;
    if (used > used_high) used_high = used;
  }
  void gave(std::uint64_t bytes) {
    std::lock_guard<std::mutex> guard(mutex);
    used -= bytes < used ? bytes : used;
  }
};

}  // namespace headrace::softgpu
