// Physical device memory that has a handle of its own (cuMemCreate). It lasts until its handle is
// released as often as it was given out, and nothing maps it any more.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

namespace headrace::softgpu {

struct PhysicalMemory {
  std::uint64_t handle = 0;
  CUmemAllocationProp properties{};
  std::uint64_t size = 0;
  std::vector<std::uint32_t> chunks;
  // Both under Runtime::physical_mutex.
  unsigned references = 1;  // of the application
  unsigned mappings = 0;
};

}  // namespace headrace::softgpu
