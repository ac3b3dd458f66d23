// All forms of memcpy but those of runs of arrays.
#include <cuda.h>

#include "gen/implicit_stream.h"
#include "remoting/softgpu/driver/array.h"
#include "remoting/softgpu/driver/copy.h"

namespace headrace::softgpu {

CUresult cuCtxSynchronize();  // api_context.cc
CUresult cuCtxSynchronize_v2(CUcontext handle);

namespace {

using gen::implicit_stream;

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

Copy linear(std::uint64_t to, std::uint64_t from, std::size_t bytes) {
  Copy out;
  out.destination.address = to;
  out.source.address = from;
  out.width = bytes;
  return out;
}

CUresult read_array(CUarray handle, std::uint64_t x, std::uint64_t y, std::uint64_t z,
                    const Copy& box, CopySide* side) {
  return with_runtime([&](Runtime& runtime) {
    ArrayPtr array = runtime.arrays.find(handle);
    if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (!array->shape.contains(x, y, z, box.width, box.height, box.depth)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    side->address = array->at(x, y, z);
    side->pitch = array->pitch;
    side->slice = array->slice();
    return CUDA_SUCCESS;
  });
}

// One side of a 2-D or 3-D descriptor.
CUresult read_side(CUmemorytype type, const void* host, CUdeviceptr device, CUarray array,
                   std::uint64_t x, std::uint64_t y, std::uint64_t z, std::size_t pitch,
                   std::size_t height, const Copy& box, CopySide* side, SideKind* kind) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      side->address = address_of(host);
      *kind = SideKind::host;
      break;
    case CU_MEMORYTYPE_DEVICE:
      side->address = device;
      *kind = SideKind::device;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      side->address = device;
      *kind = SideKind::any;
      break;
    case CU_MEMORYTYPE_ARRAY:
      *kind = SideKind::device;
      return read_array(array, x, y, z, box, side);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (side->address == 0) return CUDA_ERROR_INVALID_VALUE;
  side->pitch = pitch != 0 ? pitch : box.width;
  std::size_t rows = height != 0 ? height : box.height;
  if (box.height > 1 && side->pitch < x + box.width) return CUDA_ERROR_INVALID_VALUE;
  if (box.depth > 1 && rows < y + box.height) return CUDA_ERROR_INVALID_VALUE;
  side->slice = side->pitch * rows;
  side->address += x + y * side->pitch + z * side->slice;
  return CUDA_SUCCESS;
}

CUresult copy_2d(const CUDA_MEMCPY2D* what, CUstream stream, bool async) {
  if (what == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Copy box;
  box.width = what->WidthInBytes;
  box.height = what->Height;
  if (box.empty()) return CUDA_SUCCESS;
  SideKind from, to;
  if (CUresult result =
          read_side(what->srcMemoryType, what->srcHost, what->srcDevice, what->srcArray,
                    what->srcXInBytes, what->srcY, 0, what->srcPitch, 0, box, &box.source, &from)) {
    return result;
  }
  if (CUresult result = read_side(what->dstMemoryType, what->dstHost, what->dstDevice,
                                  what->dstArray, what->dstXInBytes, what->dstY, 0, what->dstPitch,
                                  0, box, &box.destination, &to)) {
    return result;
  }
  return copy(stream, box, to, from, async);
}

// Works for CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER: the contexts of the latter do not matter, since
// an address says which device it belongs to.
template <typename Description>
CUresult copy_3d(const Description* what, CUstream stream, bool async) {
  if (what == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Copy box;
  box.width = what->WidthInBytes;
  box.height = what->Height;
  box.depth = what->Depth;
  if (box.empty()) return CUDA_SUCCESS;
  SideKind from, to;
  if (CUresult result = read_side(what->srcMemoryType, what->srcHost, what->srcDevice,
                                  what->srcArray, what->srcXInBytes, what->srcY, what->srcZ,
                                  what->srcPitch, what->srcHeight, box, &box.source, &from)) {
    return result;
  }
  if (CUresult result = read_side(what->dstMemoryType, what->dstHost, what->dstDevice,
                                  what->dstArray, what->dstXInBytes, what->dstY, what->dstZ,
                                  what->dstPitch, what->dstHeight, box, &box.destination, &to)) {
    return result;
  }
  return copy(stream, box, to, from, async);
}

// The context that an address was allocated in; null where that cannot be said.
CUcontext context_of(Runtime& runtime, CUdeviceptr address) {
  Device* device = runtime.device_of(address);
  Allocation allocation;
  if (device == nullptr || !device->memory()->find(address, &allocation)) return nullptr;
  return to_handle<CUcontext>(allocation.context);
}

bool of_two_devices(CUdeviceptr one, CUdeviceptr other) {
  bool two = false;
  with_runtime([&](Runtime& runtime) {
    const Device* first = runtime.device_of(one);
    const Device* second = runtime.device_of(other);
    two = first != nullptr && second != nullptr && first != second;
    return CUDA_SUCCESS;
  });
  return two;
}

// Comes after all work of both contexts and of the current one, and before all that is sent later.
// A context that is null is that of the memory.
CUresult copy_between(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, std::size_t bytes) {
  const CUresult found = with_runtime([&](Runtime& runtime) {
    if (to_context == nullptr) to_context = context_of(runtime, to);
    if (from_context == nullptr) from_context = context_of(runtime, from);
    return CUDA_SUCCESS;
  });
  if (found != CUDA_SUCCESS) return found;
  for (const CUcontext context : {to_context, from_context}) {
    if (CUresult result = softgpu::cuCtxSynchronize_v2(context)) return result;
  }
  const CUresult result =
      copy(implicit_stream(), linear(to, from, bytes), SideKind::device, SideKind::device, false);
  return result != CUDA_SUCCESS ? result : softgpu::cuCtxSynchronize();
}

}  // namespace

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return copy(implicit_stream(), linear(to, address_of(from), bytes), SideKind::device,
              SideKind::host, false);
}
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return copy(implicit_stream(), linear(address_of(to), from, bytes), SideKind::host,
              SideKind::device, false);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  if (of_two_devices(to, from)) return copy_between(to, nullptr, from, nullptr, bytes);
  return copy(implicit_stream(), linear(to, from, bytes), SideKind::device, SideKind::device,
              false);
}
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  if (of_two_devices(to, from)) return copy_between(to, nullptr, from, nullptr, bytes);
  return copy(implicit_stream(), linear(to, from, bytes), SideKind::any, SideKind::any, false);
}
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, size_t bytes) {
  return copy_between(to, to_context, from, from_context, bytes);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return copy(stream, linear(to, address_of(from), bytes), SideKind::device, SideKind::host, true);
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy(stream, linear(address_of(to), from, bytes), SideKind::host, SideKind::device, true);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy(stream, linear(to, from, bytes), SideKind::device, SideKind::device, true);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy(stream, linear(to, from, bytes), SideKind::any, SideKind::any, true);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes,
                           CUstream stream) {
  return copy(stream, linear(to, from, bytes), SideKind::device, SideKind::device, true);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* what) {
  return copy_2d(what, implicit_stream(), false);
}
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* what) {
  return copy_2d(what, implicit_stream(), false);
}
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* what, CUstream stream) {
  return copy_2d(what, stream, true);
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* what) {
  return copy_3d(what, implicit_stream(), false);
}
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* what, CUstream stream) {
  return copy_3d(what, stream, true);
}
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* what) {
  return copy_3d(what, implicit_stream(), false);
}
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* what, CUstream stream) {
  return copy_3d(what, stream, true);
}

}  // namespace headrace::softgpu
