// CUDA arrays: what descriptions are allowed and how large they are, the same for every libcuda.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace headrace::driverabi {

// Bytes of one element; 0: no format that is carried, or not with so many channels.
unsigned array_element_bytes(CUarray_format format, unsigned channels);

// Rows and slices of an array; height and depth 0 of a description count as 1 here.
struct ArrayShape {
  std::uint64_t row = 0;  // bytes
  std::uint64_t height = 1;
  std::uint64_t depth = 1;
  unsigned element = 0;

  // Whether a box of bytes lies inside, whole elements of each row.
  bool contains(std::uint64_t x, std::uint64_t y, std::uint64_t z, std::uint64_t width,
                std::uint64_t rows, std::uint64_t slices) const {
    return x % element == 0 && width % element == 0 && x <= row && width <= row - x &&
           y <= height && rows <= height - y && z <= depth && slices <= depth - z;
  }
};

// INVALID_VALUE for what CUDA refuses, NOT_SUPPORTED for what is not carried.
CUresult check_array(const CUDA_ARRAY3D_DESCRIPTOR& wanted, ArrayShape* shape);

}  // namespace headrace::driverabi
