// Device memory (apispec/memory.toml, memory_pool.toml). Every path asks the account first.
#include <algorithm>

#include "worker/bodies/bodies.h"

namespace headrace::worker::bodies {
namespace {

// Rows of a pitched allocation begin at multiples of this on all devices so far.
constexpr std::uint64_t widest_pitch = 512;

// Charges, allocates with `allocate`, records. The driver's own refusal gives the charge back.
template <typename Allocate>
CUresult allocate(Session& session, std::uint64_t bytes, std::uint64_t& address,
                  Allocate allocate_it) {
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  if (session.current().handle == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > UINT64_MAX - memory_unit) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::uint64_t charged = round_up(bytes, memory_unit);
  if (!session.charge(charged)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUdeviceptr pointer = 0;
  const CUresult result = allocate_it(pointer);
  if (result != CUDA_SUCCESS) {
    session.give_back(charged);
    return result;
  }
  session.add_allocation(pointer, charged);
  address = pointer;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemAlloc_v2(Session& session, const calls::CuMemAlloc_v2& call,
                       calls::CuMemAlloc_v2Reply& reply) {
  return allocate(session, call.bytesize, reply.dptr, [&](CUdeviceptr& pointer) {
    return session.driver().cuMemAlloc_v2(&pointer, call.bytesize);
  });
}

CUresult cuMemAllocPitch_v2(Session& session, const calls::CuMemAllocPitch_v2& call,
                            calls::CuMemAllocPitch_v2Reply& reply) {
  const std::uint64_t row = call.WidthInBytes;
  if (row == 0 || call.Height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (row > (1ull << 48) || call.Height > (1ull << 48) / round_up(row, widest_pitch)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  std::size_t pitch = 0;
  const CUresult result = allocate(session, round_up(row, widest_pitch) * call.Height, reply.dptr,
                                   [&](CUdeviceptr& pointer) {
                                     return session.driver().cuMemAllocPitch_v2(
                                         &pointer, &pitch, row, call.Height, call.ElementSizeBytes);
                                   });
  reply.pPitch = pitch;
  return result;
}

CUresult cuMemFree_v2(Session& session, const calls::CuMemFree_v2& call) {
  if (call.dptr == 0) return CUDA_SUCCESS;
  if (session.find_allocation(call.dptr) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  const CUresult result = session.driver().cuMemFree_v2(call.dptr);
  if (result == CUDA_SUCCESS) session.drop_allocation(call.dptr);
  return result;
}

CUresult cuMemGetInfo_v2(Session& session, const calls::CuMemGetInfo_v2&,
                         calls::CuMemGetInfo_v2Reply& reply) {
  if (session.current().handle == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  // Asked all the same, because a lost context answers here, too.
  std::size_t free = 0, total = 0;
  const CUresult result = session.driver().cuMemGetInfo_v2(&free, &total);
  if (result != CUDA_SUCCESS) return result;
  const MemoryAccount::Info info = session.memory().info(session.current().device);
  reply.free = std::min<std::uint64_t>(info.free, info.total);
  reply.total = info.total;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(Session& session, const calls::CuMemAllocAsync& call,
                         calls::CuMemAllocAsyncReply& reply) {
  CUstream stream = nullptr;
  if (!session.find(HandleKind::stream, call.hStream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  return allocate(session, call.bytesize, reply.dptr, [&](CUdeviceptr& pointer) {
    return HEADRACE_DRIVER_CALL(session, cuMemAllocAsync, &pointer, call.bytesize, stream);
  });
}

CUresult cuMemAllocFromPoolAsync(Session& session, const calls::CuMemAllocFromPoolAsync& call,
                                 calls::CuMemAllocFromPoolAsyncReply& reply) {
  CUstream stream = nullptr;
  CUmemoryPool pool = nullptr;
  if (!session.find(HandleKind::stream, call.hStream, stream) ||
      !session.find(HandleKind::memory_pool, call.pool, pool)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return allocate(session, call.bytesize, reply.dptr, [&](CUdeviceptr& pointer) {
    return HEADRACE_DRIVER_CALL(session, cuMemAllocFromPoolAsync, &pointer, call.bytesize, pool,
                                stream);
  });
}

CUresult cuMemFreeAsync(Session& session, const calls::CuMemFreeAsync& call) {
  CUstream stream = nullptr;
  if (!session.find(HandleKind::stream, call.hStream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (call.dptr == 0) return CUDA_SUCCESS;
  if (session.find_allocation(call.dptr) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  const CUresult result = HEADRACE_DRIVER_CALL(session, cuMemFreeAsync, call.dptr, stream);
  if (result == CUDA_SUCCESS) session.drop_allocation(call.dptr);
  return result;
}

CUresult cuMemPoolCreate(Session& session, const calls::CuMemPoolCreate& call) {
  CUmemPoolProps wanted = call.poolProps;
  if (wanted.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      wanted.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      wanted.handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUdevice device = 0;
  if (!session.find_device(wanted.location.id, device)) return CUDA_ERROR_INVALID_DEVICE;
  // Only what is known is passed on: the rest of the structure may hold anything.
  CUmemPoolProps properties{};
  properties.allocType = wanted.allocType;
  properties.location.type = wanted.location.type;
  properties.location.id = device;
  properties.maxSize = wanted.maxSize;
  CUmemoryPool pool = nullptr;
  CUresult result = HEADRACE_DRIVER_CALL(session, cuMemPoolCreate, &pool, &properties);
  if (result != CUDA_SUCCESS) return result;
  result = session.adopt(HandleKind::memory_pool, call.pool, pool);
  if (result != CUDA_SUCCESS) session.driver().cuMemPoolDestroy(pool);
  return result;
}

CUresult cuMemPoolSetAttribute(Session& session, const calls::CuMemPoolSetAttribute& call) {
  CUmemoryPool pool = nullptr;
  if (!session.find(HandleKind::memory_pool, call.pool, pool)) return CUDA_ERROR_INVALID_HANDLE;
  // All values are 32 or 64 bits wide, little-endian: the low part of one number serves both.
  std::uint64_t value = call.number;
  return HEADRACE_DRIVER_CALL(session, cuMemPoolSetAttribute, pool,
                              static_cast<CUmemPool_attribute>(call.attr), &value);
}

CUresult cuMemPoolGetAttribute(Session& session, const calls::CuMemPoolGetAttribute& call,
                               calls::CuMemPoolGetAttributeReply& reply) {
  CUmemoryPool pool = nullptr;
  if (!session.find(HandleKind::memory_pool, call.pool, pool)) return CUDA_ERROR_INVALID_HANDLE;
  std::uint64_t value = 0;
  const CUresult result = HEADRACE_DRIVER_CALL(session, cuMemPoolGetAttribute, pool,
                                               static_cast<CUmemPool_attribute>(call.attr), &value);
  reply.number = value;
  return result;
}

}  // namespace headrace::worker::bodies
