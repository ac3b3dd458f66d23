// Memory: the device's is this process's.
#include <cstdlib>
#include <cstring>

#include "null.h"

namespace headrace::nullgpu {
namespace {

constexpr std::size_t alignment = 512;

void* at(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace

CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}
CUresult cuMemAllocPitch_v2(CUdeviceptr* address, std::size_t* pitch, std::size_t width,
                            std::size_t height, unsigned) {
  *pitch = (width + alignment - 1) / alignment * alignment;
  return cuMemAlloc_v2(address, *pitch * height);
}
CUresult cuMemFree_v2(CUdeviceptr address) {
  std::free(at(address));
  return CUDA_SUCCESS;
}
CUresult cuMemAllocAsync(CUdeviceptr* address, std::size_t bytes, CUstream) {
  return cuMemAlloc_v2(address, bytes);
}
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream) { return cuMemFree_v2(address); }
CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{64} << 30;
  return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  *memory = std::malloc(bytes);
  return *memory == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void* memory) {
  std::free(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void*, std::size_t, unsigned) { return CUDA_SUCCESS; }
CUresult cuMemHostUnregister(void*) { return CUDA_SUCCESS; }
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* memory, unsigned) {
  *out = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream) {
  std::memmove(at(to), at(from), bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream) {
  std::memcpy(at(to), from, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream) {
  std::memcpy(to, at(from), bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream) {
  std::memmove(at(to), at(from), bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream) {
  const bool from_host = copy->srcMemoryType == CU_MEMORYTYPE_HOST;
  const bool to_host = copy->dstMemoryType == CU_MEMORYTYPE_HOST;
  const char* from = static_cast<const char*>(from_host ? copy->srcHost : at(copy->srcDevice));
  char* to = static_cast<char*>(to_host ? copy->dstHost : at(copy->dstDevice));
  for (std::size_t z = 0; z < copy->Depth; ++z) {
    for (std::size_t y = 0; y < copy->Height; ++y) {
      std::memmove(to + (z * copy->dstHeight + y) * copy->dstPitch,
                   from + (z * copy->srcHeight + y) * copy->srcPitch, copy->WidthInBytes);
    }
  }
  return CUDA_SUCCESS;
}
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
  CUDA_MEMCPY3D block{};
  block.srcMemoryType = copy->srcMemoryType;
  block.srcHost = copy->srcHost;
  block.srcDevice = copy->srcDevice;
  block.srcPitch = copy->srcPitch;
  block.dstMemoryType = copy->dstMemoryType;
  block.dstHost = copy->dstHost;
  block.dstDevice = copy->dstDevice;
  block.dstPitch = copy->dstPitch;
  block.WidthInBytes = copy->WidthInBytes;
  block.Height = copy->Height;
  block.Depth = 1;
  return nullgpu::cuMemcpy3DAsync_v2(&block, stream);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream) {
  std::memset(at(to), value, count);
  return CUDA_SUCCESS;
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count, CUstream) {
  unsigned* words = static_cast<unsigned*>(at(to));
  for (std::size_t i = 0; i < count; ++i) words[i] = value;
  return CUDA_SUCCESS;
}

}  // namespace headrace::nullgpu
