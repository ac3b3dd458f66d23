// The null backend: every body here is a CUDA driver function that does the least that is true of a
// device on which all work is done at once.
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#include <cuda.h>

namespace headrace::nullgpu {

// Handles are never looked into, so a counter makes them.
template <typename Handle>
CUresult make(Handle* out) {
  static unsigned long next = 0x1000;
  *out = reinterpret_cast<Handle>(__atomic_add_fetch(&next, 16, __ATOMIC_RELAXED));
  return CUDA_SUCCESS;
}

}  // namespace headrace::nullgpu
