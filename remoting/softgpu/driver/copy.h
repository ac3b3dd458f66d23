// Copies between host and device memory, in the order that streams and CUDA's rules for pageable
// memory ask for.
#pragma once

#include <cuda.h>

#include "remoting/softgpu/driver/runtime.h"

namespace headrace::softgpu {

// A box of bytes: `height` rows of `width` bytes, `depth` slices of them. One-dimensional copies
// have height and depth 1.
struct CopySide {
  std::uint64_t address = 0;
  std::size_t pitch = 0;  // bytes from row to row
  std::size_t slice = 0;  // bytes from slice to slice
};

struct Copy {
  CopySide source, destination;
  std::size_t width = 0, height = 1, depth = 1;

  bool empty() const { return width == 0 || height == 0 || depth == 0; }
  // Bytes from a side's address to the end of its last row; 0 when that overflows.
  std::uint64_t extent(const CopySide& side) const;
  void run() const;
};

enum class Place { device, pinned, pageable };

// Where [address, address + size) lies. INVALID_VALUE when `expect_device` and it is no memory that
// a kernel could reach.
CUresult place_of(Runtime& runtime, std::uint64_t address, std::uint64_t size, bool expect_device,
                  Place* place);

// What the caller says about each side; `any` is decided by the address (unified addressing).
enum class SideKind { host, device, any };

CUresult copy(CUstream stream, const Copy& what, SideKind destination, SideKind source, bool async);

}  // namespace headrace::softgpu
