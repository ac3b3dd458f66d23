// A CUDA array: rows of elements in device memory, laid out as its driver likes.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>

#include "remoting/driverabi/arrays.h"
#include "remoting/softgpu/driver/context.h"

namespace headrace::softgpu {

constexpr std::uint64_t kArrayAlign = 512;

struct Array {
  std::uint64_t handle = 0;
  std::weak_ptr<Context> context;
  Device* device = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR description{};
  driverabi::ArrayShape shape;
  std::uint64_t base = 0;
  std::uint64_t pitch = 0;  // bytes from row to row

  std::uint64_t slice() const { return pitch * shape.height; }
  std::uint64_t bytes() const { return slice() * shape.depth; }
  std::uint64_t at(std::uint64_t x, std::uint64_t y, std::uint64_t z) const {
    return base + x + y * pitch + z * slice();
  }
};
using ArrayPtr = std::shared_ptr<Array>;

}  // namespace headrace::softgpu
