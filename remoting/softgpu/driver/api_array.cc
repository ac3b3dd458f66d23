// CUDA arrays, and copies of runs of one-dimensional ones. Copies of boxes are in api_copy.cc.
#include <cuda.h>

#include "gen/implicit_stream.h"
#include "remoting/softgpu/driver/array.h"
#include "remoting/softgpu/driver/capture.h"
#include "remoting/softgpu/driver/copy.h"

namespace headrace::softgpu {

// Bodies of other files.
decltype(::cuArray3DCreate_v2) cuArray3DCreate_v2;

namespace {

using gen::implicit_stream;

template <typename Body>
CUresult with_array(CUarray handle, Body&& body) noexcept {
  return with_runtime([&](Runtime& runtime) -> CUresult {
    ArrayPtr array = runtime.arrays.find(handle);
    if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return body(runtime, array);
  });
}

// `bytes` from `offset` on of an array that is one row.
CUresult run_of(CUarray handle, std::size_t offset, std::size_t bytes, CopySide* side) {
  return with_array(handle, [&](Runtime&, ArrayPtr& array) {
    if (array->shape.height != 1 || array->shape.depth != 1 ||
        !array->shape.contains(offset, 0, 0, bytes, 1, 1)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    side->address = array->at(offset, 0, 0);
    return CUDA_SUCCESS;
  });
}

CUresult to_array(CUarray to, std::size_t offset, std::uint64_t from, SideKind kind,
                  std::size_t bytes, CUstream stream, bool async) {
  Copy what;
  what.width = bytes;
  what.source.address = from;
  if (CUresult bad = run_of(to, offset, bytes, &what.destination)) return bad;
  return copy(stream, what, SideKind::device, kind, async);
}

CUresult from_array(std::uint64_t to, SideKind kind, CUarray from, std::size_t offset,
                    std::size_t bytes, CUstream stream, bool async) {
  Copy what;
  what.width = bytes;
  what.destination.address = to;
  if (CUresult bad = run_of(from, offset, bytes, &what.source)) return bad;
  return copy(stream, what, kind, SideKind::device, async);
}

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

}  // namespace

CUresult cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* wanted) {
  return with_context([&](Runtime& runtime, ContextPtr& context) -> CUresult {
    if (out == nullptr || wanted == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (Graphs::Verdict upset = capture_upset()) return *upset;
    ArrayPtr array = std::make_shared<Array>();
    if (CUresult bad = driverabi::check_array(*wanted, &array->shape)) return bad;
    array->description = *wanted;
    array->context = context;
    array->device = &context->device();
    array->pitch = (array->shape.row + kArrayAlign - 1) / kArrayAlign * kArrayAlign;
    DeviceMemory* memory = context->device().memory();
    if (memory != nullptr) {
      array->base = memory->allocate(array->bytes(), context->handle, 0, /*internal=*/true);
    }
    if (array->base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = to_handle<CUarray>(runtime.arrays.add(array));
    return CUDA_SUCCESS;
  });
}

CUresult cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* wanted) {
  if (wanted == nullptr) return softgpu::cuArray3DCreate_v2(out, nullptr);
  CUDA_ARRAY3D_DESCRIPTOR full{};
  full.Width = wanted->Width;
  full.Height = wanted->Height;
  full.Format = wanted->Format;
  full.NumChannels = wanted->NumChannels;
  return softgpu::cuArray3DCreate_v2(out, &full);
}

CUresult cuArrayDestroy(CUarray handle) {
  return with_array(handle, [&](Runtime& runtime, ArrayPtr& array) {
    // Copies that are under way may still use it.
    if (ContextPtr owner = array->context.lock()) owner->wait_all();
    if (runtime.arrays.remove(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    array->device->memory()->free(array->base, /*internal=*/true);
    return CUDA_SUCCESS;
  });
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
  return with_array(handle, [&](Runtime&, ArrayPtr& array) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = array->description;
    return CUDA_SUCCESS;
  });
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray handle) {
  return with_array(handle, [&](Runtime&, ArrayPtr& array) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_ARRAY3D_DESCRIPTOR& full = array->description;
    *out = {full.Width, full.Height, full.Format, full.NumChannels};
    return CUDA_SUCCESS;
  });
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUarray handle,
                                      CUdevice device) {
  return with_array(handle, [&](Runtime& runtime, ArrayPtr& array) {
    if (runtime.device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = {};
    out->size = array->bytes();
    out->alignment = kArrayAlign;
    return CUDA_SUCCESS;
  });
}

// No array here has planes or is sparse.
CUresult cuArrayGetPlane(CUarray*, CUarray handle, unsigned int) {
  return with_array(handle, [](Runtime&, ArrayPtr&) { return CUDA_ERROR_INVALID_VALUE; });
}
CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUarray handle) {
  return with_array(handle, [](Runtime&, ArrayPtr&) { return CUDA_ERROR_INVALID_VALUE; });
}

// ---------------------------------------------------------------- runs

CUresult cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t bytes) {
  return to_array(to, offset, from, SideKind::device, bytes, implicit_stream(), false);
}
CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t bytes) {
  return from_array(to, SideKind::device, from, offset, bytes, implicit_stream(), false);
}
CUresult cuMemcpyHtoA_v2(CUarray to, size_t offset, const void* from, size_t bytes) {
  return to_array(to, offset, address_of(from), SideKind::host, bytes, implicit_stream(), false);
}
CUresult cuMemcpyAtoH_v2(void* to, CUarray from, size_t offset, size_t bytes) {
  return from_array(address_of(to), SideKind::host, from, offset, bytes, implicit_stream(), false);
}
CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void* from, size_t bytes,
                              CUstream stream) {
  return to_array(to, offset, address_of(from), SideKind::host, bytes, stream, true);
}
CUresult cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t offset, size_t bytes,
                              CUstream stream) {
  return from_array(address_of(to), SideKind::host, from, offset, bytes, stream, true);
}
CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset,
                         size_t bytes) {
  CopySide source;
  if (CUresult bad = run_of(from, from_offset, bytes, &source)) return bad;
  return to_array(to, to_offset, source.address, SideKind::device, bytes, implicit_stream(), false);
}

}  // namespace headrace::softgpu
