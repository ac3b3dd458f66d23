// All forms of memset.
#include <cuda.h>

#include <algorithm>
#include <cstring>

#include "gen/implicit_stream.h"
#include "remoting/softgpu/driver/capture.h"
#include "remoting/softgpu/driver/copy.h"

namespace headrace::softgpu {
namespace {

using gen::implicit_stream;

constexpr std::uint64_t kInline = 256 << 10;

template <typename T>
void fill(std::uint64_t address, std::size_t pitch, T value, std::size_t width,
          std::size_t height) {
  for (std::size_t y = 0; y < height; ++y) {
    T* row = reinterpret_cast<T*>(address + y * pitch);
    std::fill(row, row + width, value);
  }
}

// Width in elements.
template <typename T>
CUresult set(CUstream handle, CUdeviceptr address, std::size_t pitch, T value, std::size_t width,
             std::size_t height) {
  return with_stream(
      handle, [&](Runtime& runtime, ContextPtr& context, StreamPtr& stream) -> CUresult {
        if (width == 0 || height == 0) return CUDA_SUCCESS;
        if (address % sizeof(T) != 0 || width > (std::uint64_t{1} << 60) / sizeof(T)) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        Copy box;
        box.width = width * sizeof(T);
        box.height = height;
        CopySide side{address, pitch, 0};
        if (height > 1 && (pitch < box.width || pitch % sizeof(T) != 0)) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        std::uint64_t bytes = box.extent(side);
        Place place;
        if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
        if (CUresult result = place_of(runtime, address, bytes, true, &place)) return result;
        if (Graphs::Verdict captured = capture_work(*context, *stream, [&] {
              return driverabi::MemsetNode{{address, pitch, value, sizeof(T), width, height}};
            })) {
          return *captured;
        }
        if (bytes <= kInline && context->idle(stream)) {
          fill(address, pitch, value, width, height);
          return CUDA_SUCCESS;
        }
        context->submit(stream, [=] {
          fill(address, pitch, value, width, height);
          return CUDA_SUCCESS;
        });
        return CUDA_SUCCESS;
      });
}

}  // namespace

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t n) {
  return set(implicit_stream(), to, 0, value, n, 1);
}
CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t n) {
  return set(implicit_stream(), to, 0, value, n, 1);
}
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t n) {
  return set(implicit_stream(), to, 0, value, n, 1);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                         size_t height) {
  return set(implicit_stream(), to, pitch, value, width, height);
}
CUresult cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
                          size_t height) {
  return set(implicit_stream(), to, pitch, value, width, height);
}
CUresult cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned int value, size_t width,
                          size_t height) {
  return set(implicit_stream(), to, pitch, value, width, height);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream stream) {
  return set(stream, to, 0, value, n, 1);
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t n, CUstream stream) {
  return set(stream, to, 0, value, n, 1);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t n, CUstream stream) {
  return set(stream, to, 0, value, n, 1);
}
CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                           size_t height, CUstream stream) {
  return set(stream, to, pitch, value, width, height);
}
CUresult cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
                            size_t height, CUstream stream) {
  return set(stream, to, pitch, value, width, height);
}
CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned int value, size_t width,
                            size_t height, CUstream stream) {
  return set(stream, to, pitch, value, width, height);
}

}  // namespace headrace::softgpu
