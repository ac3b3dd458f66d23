// CUDA arrays: described here, held by the server's driver. Copies of boxes are in
// memcpy_blocks.cc; those of runs of one-dimensional arrays are boxes of one row.
#include <memory>

#include "client/captures.h"
#include "client/process.h"
#include "client/remote.h"
#include "gen/client_families.h"
#include "gen/implicit_stream.h"

namespace headrace::client::families {
namespace {

CUresult find_array(CUarray handle, std::shared_ptr<Array>& array) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  array = process().arrays.find(reinterpret_cast<std::uint64_t>(handle));
  return array == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

// `bytes` from `offset` on of an array that is one row.
CUresult check_run(CUarray handle, std::size_t offset, std::size_t bytes) {
  std::shared_ptr<Array> array;
  if (const CUresult bad = find_array(handle, array); bad != CUDA_SUCCESS) return bad;
  return array->shape.height == 1 && array->shape.depth == 1 &&
                 array->shape.contains(offset, 0, 0, bytes, 1, 1)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUDA_MEMCPY3D row_of(std::size_t bytes) {
  CUDA_MEMCPY3D row{};
  row.WidthInBytes = bytes;
  row.Height = row.Depth = 1;
  return row;
}

CUresult to_array(CUDA_MEMCPY3D row, CUarray to, std::size_t offset, CUstream stream, bool async) {
  if (const CUresult bad = check_run(to, offset, row.WidthInBytes); bad != CUDA_SUCCESS) return bad;
  row.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  row.dstArray = to;
  row.dstXInBytes = offset;
  return async ? families::cuMemcpy3DAsync_v2(&row, stream) : families::cuMemcpy3D_v2(&row);
}

CUresult from_array(CUDA_MEMCPY3D row, CUarray from, std::size_t offset, CUstream stream,
                    bool async) {
  if (const CUresult bad = check_run(from, offset, row.WidthInBytes); bad != CUDA_SUCCESS) {
    return bad;
  }
  row.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  row.srcArray = from;
  row.srcXInBytes = offset;
  return async ? families::cuMemcpy3DAsync_v2(&row, stream) : families::cuMemcpy3D_v2(&row);
}

CUresult host_to_array(CUarray to, std::size_t offset, const void* from, std::size_t bytes,
                       CUstream stream, bool async) {
  CUDA_MEMCPY3D row = row_of(bytes);
  row.srcMemoryType = CU_MEMORYTYPE_HOST;
  row.srcHost = from;
  return to_array(row, to, offset, stream, async);
}

CUresult array_to_host(void* to, CUarray from, std::size_t offset, std::size_t bytes,
                       CUstream stream, bool async) {
  CUDA_MEMCPY3D row = row_of(bytes);
  row.dstMemoryType = CU_MEMORYTYPE_HOST;
  row.dstHost = to;
  return from_array(row, from, offset, stream, async);
}

}  // namespace

CUresult cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* wanted) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (out == nullptr || wanted == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const Graphs::Verdict upset = capture_upset()) return *upset;
  const std::shared_ptr<Array> array = std::make_shared<Array>();
  if (const CUresult bad = driverabi::check_array(*wanted, &array->shape); bad != CUDA_SUCCESS) {
    return bad;
  }
  array->context = context;
  array->description = *wanted;
  calls::CuArray3DCreate_v2 call;
  call.pHandle = process().handles.make(HandleKind::array);
  call.pAllocateArray = *wanted;
  calls::CuArray3DCreate_v2::Reply reply;
  const TripResult outcome = trip_in(context->id, call, reply);
  if (outcome.result != CUDA_SUCCESS) return outcome.told();
  if (outcome.deferred != CUDA_SUCCESS) {
    calls::CuArrayDestroy back;
    back.hArray = call.pHandle;
    send_in(context->id, back);
    return outcome.deferred;
  }
  array->id = call.pHandle;
  process().arrays.insert(array->id, array);
  *out = reinterpret_cast<CUarray>(array->id);
  return CUDA_SUCCESS;
}

CUresult cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* wanted) {
  if (wanted == nullptr) return families::cuArray3DCreate_v2(out, nullptr);
  CUDA_ARRAY3D_DESCRIPTOR full{};
  full.Width = wanted->Width;
  full.Height = wanted->Height;
  full.Format = wanted->Format;
  full.NumChannels = wanted->NumChannels;
  return families::cuArray3DCreate_v2(out, &full);
}

CUresult cuArrayDestroy(CUarray handle) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  const std::shared_ptr<Array> array =
      process().arrays.take(reinterpret_cast<std::uint64_t>(handle));
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  calls::CuArrayDestroy call;
  call.hArray = array->id;
  return send_in(array->context->id, call);
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
  std::shared_ptr<Array> array;
  if (const CUresult bad = find_array(handle, array); bad != CUDA_SUCCESS) return bad;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = array->description;
  return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray handle) {
  std::shared_ptr<Array> array;
  if (const CUresult bad = find_array(handle, array); bad != CUDA_SUCCESS) return bad;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR& full = array->description;
  *out = {full.Width, full.Height, full.Format, full.NumChannels};
  return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUarray handle,
                                      CUdevice device) {
  std::shared_ptr<Array> array;
  if (const CUresult bad = find_array(handle, array); bad != CUDA_SUCCESS) return bad;
  calls::CuArrayGetMemoryRequirements call;
  if (const CUresult bad = to_wire_device(device, call.device); bad != CUDA_SUCCESS) return bad;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  call.array = array->id;
  calls::CuArrayGetMemoryRequirements::Reply reply;
  const CUresult result = trip_in(array->context->id, call, reply).told();
  if (result == CUDA_SUCCESS) *out = reply.memoryRequirements;
  return result;
}

// No array here has planes or is sparse.
CUresult cuArrayGetPlane(CUarray*, CUarray handle, unsigned int) {
  std::shared_ptr<Array> array;
  const CUresult bad = find_array(handle, array);
  return bad != CUDA_SUCCESS ? bad : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUarray handle) {
  std::shared_ptr<Array> array;
  const CUresult bad = find_array(handle, array);
  return bad != CUDA_SUCCESS ? bad : CUDA_ERROR_INVALID_VALUE;
}

// ---------------------------------------------------------------- runs

CUresult cuMemcpyDtoA_v2(CUarray to, std::size_t offset, CUdeviceptr from, std::size_t bytes) {
  CUDA_MEMCPY3D row = row_of(bytes);
  row.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  row.srcDevice = from;
  return to_array(row, to, offset, nullptr, false);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, std::size_t offset, std::size_t bytes) {
  CUDA_MEMCPY3D row = row_of(bytes);
  row.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  row.dstDevice = to;
  return from_array(row, from, offset, nullptr, false);
}

CUresult cuMemcpyAtoA_v2(CUarray to, std::size_t to_offset, CUarray from, std::size_t from_offset,
                         std::size_t bytes) {
  if (const CUresult bad = check_run(from, from_offset, bytes); bad != CUDA_SUCCESS) return bad;
  CUDA_MEMCPY3D row = row_of(bytes);
  row.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  row.srcArray = from;
  row.srcXInBytes = from_offset;
  return to_array(row, to, to_offset, nullptr, false);
}

CUresult cuMemcpyHtoA_v2(CUarray to, std::size_t offset, const void* from, std::size_t bytes) {
  return host_to_array(to, offset, from, bytes, nullptr, false);
}
CUresult cuMemcpyAtoH_v2(void* to, CUarray from, std::size_t offset, std::size_t bytes) {
  return array_to_host(to, from, offset, bytes, nullptr, false);
}
CUresult cuMemcpyHtoAAsync_v2(CUarray to, std::size_t offset, const void* from, std::size_t bytes,
                              CUstream stream) {
  return host_to_array(to, offset, from, bytes, stream, true);
}
CUresult cuMemcpyAtoHAsync_v2(void* to, CUarray from, std::size_t offset, std::size_t bytes,
                              CUstream stream) {
  return array_to_host(to, from, offset, bytes, stream, true);
}

}  // namespace headrace::client::families
