// Stream-ordered allocation and its pools.
#include <cstring>
#include <mutex>
#include <optional>

#include "client/allocations.h"
#include "client/captures.h"
#include "client/process.h"
#include "client/remote.h"
#include "client/streams.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

CUmemoryPool pool_handle(std::uint64_t id) { return reinterpret_cast<CUmemoryPool>(id); }

CUresult find_device(CUdevice ordinal, Device*& device) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  device = process().device(ordinal);
  return device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

// Under the device's pool_mutex.
CUresult default_pool(Device& device, std::uint64_t& id) {
  if (device.default_pool == 0) {
    calls::CuDeviceGetDefaultMemPool call;
    call.pool_out = process().handles.make(HandleKind::memory_pool);
    call.dev = device.wire_ordinal;
    calls::CuDeviceGetDefaultMemPool::Reply reply;
    const TripResult outcome = trip_in(0, call, reply);
    if (outcome.result == CUDA_SUCCESS) device.default_pool = call.pool_out;
    if (outcome.told() != CUDA_SUCCESS) return outcome.told();
  }
  id = device.default_pool;
  return CUDA_SUCCESS;
}

CUresult finish_allocation(Context& context, const TripResult& outcome, std::uint64_t base,
                           std::uint64_t size, std::uint64_t stream, CUdeviceptr* out) {
  if (outcome.result != CUDA_SUCCESS) return outcome.told();
  if (outcome.deferred != CUDA_SUCCESS) {
    calls::CuMemFreeAsync back;
    back.dptr = base;
    back.hStream = stream;
    send_in(context.id, back);
    return outcome.deferred;
  }
  *out = base;
  return record_allocation(context, base, size, /*pooled=*/true);
}

// Attributes are 64-bit counters, except for the reuse policies, which are ints.
bool is_counter(CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return false;
    default:
      return true;
  }
}

}  // namespace

CUresult cuMemAllocAsync(CUdeviceptr* out, std::size_t size, CUstream stream) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (out == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  calls::CuMemAllocAsync call;
  call.bytesize = size;
  if (const CUresult bad = resolve_stream(stream, call.hStream); bad != CUDA_SUCCESS) return bad;
  if (const Graphs::Verdict forbidden = capture_forbids(*context, call.hStream)) return *forbidden;
  calls::CuMemAllocAsync::Reply reply;
  const TripResult outcome = trip_in(context->id, call, reply);
  return finish_allocation(*context, outcome, reply.dptr, size, call.hStream, out);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out, std::size_t size, CUmemoryPool pool,
                                 CUstream stream) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (out == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  calls::CuMemAllocFromPoolAsync call;
  call.bytesize = size;
  if (const CUresult bad = to_wire(HandleKind::memory_pool, pool, call.pool); bad != CUDA_SUCCESS) {
    return bad;
  }
  if (const CUresult bad = resolve_stream(stream, call.hStream); bad != CUDA_SUCCESS) return bad;
  if (const Graphs::Verdict forbidden = capture_forbids(*context, call.hStream)) return *forbidden;
  calls::CuMemAllocFromPoolAsync::Reply reply;
  const TripResult outcome = trip_in(context->id, call, reply);
  return finish_allocation(*context, outcome, reply.dptr, size, call.hStream, out);
}

CUresult cuMemFreeAsync(CUdeviceptr base, CUstream stream) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (base == 0) return CUDA_SUCCESS;
  calls::CuMemFreeAsync call;
  call.dptr = base;
  if (const CUresult bad = resolve_stream(stream, call.hStream); bad != CUDA_SUCCESS) return bad;
  if (const Graphs::Verdict forbidden = capture_forbids(*context, call.hStream)) return *forbidden;
  const std::optional<MemoryRange> known = process().memory.find(base);
  if (!known || known->base != base || known->host() || known->module != 0 || known->mapped() ||
      !process().memory.take(base, RangeKind::device)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return send_in(context->id, call);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice ordinal) {
  Device* device = nullptr;
  if (const CUresult state = find_device(ordinal, device); state != CUDA_SUCCESS) return state;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(device->pool_mutex);
  std::uint64_t id = 0;
  if (const CUresult result = default_pool(*device, id); result != CUDA_SUCCESS) return result;
  *out = pool_handle(id);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* out, CUdevice ordinal) {
  Device* device = nullptr;
  if (const CUresult state = find_device(ordinal, device); state != CUDA_SUCCESS) return state;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(device->pool_mutex);
  std::uint64_t id = device->current_pool;
  if (id == 0) {
    if (const CUresult result = default_pool(*device, id); result != CUDA_SUCCESS) return result;
  }
  *out = pool_handle(id);
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool pool) {
  Device* device = nullptr;
  if (const CUresult state = find_device(ordinal, device); state != CUDA_SUCCESS) return state;
  calls::CuDeviceSetMemPool call;
  call.dev = device->wire_ordinal;
  if (const CUresult bad = to_wire(HandleKind::memory_pool, pool, call.pool); bad != CUDA_SUCCESS) {
    return bad;
  }
  const std::lock_guard<std::mutex> lock(device->pool_mutex);
  calls::CuDeviceSetMemPool::Reply reply;
  const TripResult outcome = trip_in(0, call, reply);
  if (outcome.result == CUDA_SUCCESS) device->current_pool = call.pool;
  return outcome.told();
}

CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* properties) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (out == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  Device* const device = process().device(properties->location.id);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  calls::CuMemPoolCreate call;
  call.pool = process().handles.make(HandleKind::memory_pool);
  call.poolProps = *properties;
  call.poolProps.location.id = device->wire_ordinal;
  calls::CuMemPoolCreate::Reply reply;
  const CUresult result = trip_in(0, call, reply).told();
  if (result == CUDA_SUCCESS) *out = pool_handle(call.pool);
  return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  calls::CuMemPoolDestroy call;
  if (const CUresult bad = to_wire(HandleKind::memory_pool, pool, call.pool); bad != CUDA_SUCCESS) {
    return bad;
  }
  for (const std::unique_ptr<Device>& device : process().devices) {
    const std::lock_guard<std::mutex> lock(device->pool_mutex);
    if (device->default_pool == call.pool) return CUDA_ERROR_INVALID_VALUE;
    if (device->current_pool == call.pool) device->current_pool = 0;
  }
  return send_in(0, call);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  calls::CuMemPoolSetAttribute call;
  if (const CUresult bad = to_wire(HandleKind::memory_pool, pool, call.pool); bad != CUDA_SUCCESS) {
    return bad;
  }
  call.attr = attribute;
  if (is_counter(attribute)) {
    std::memcpy(&call.number, value, sizeof(cuuint64_t));
  } else {
    int number = 0;
    std::memcpy(&number, value, sizeof number);
    call.number = static_cast<std::uint64_t>(number);
  }
  calls::CuMemPoolSetAttribute::Reply reply;
  return trip_in(0, call, reply).told();
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  calls::CuMemPoolGetAttribute call;
  if (const CUresult bad = to_wire(HandleKind::memory_pool, pool, call.pool); bad != CUDA_SUCCESS) {
    return bad;
  }
  call.attr = attribute;
  calls::CuMemPoolGetAttribute::Reply reply;
  const CUresult result = trip_in(0, call, reply).told();
  if (result != CUDA_SUCCESS) return result;
  if (is_counter(attribute)) {
    std::memcpy(value, &reply.number, sizeof(cuuint64_t));
  } else {
    const int number = static_cast<int>(reply.number);
    std::memcpy(value, &number, sizeof number);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* access, std::size_t count) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  calls::CuMemPoolSetAccess call;
  if (const CUresult bad = to_wire(HandleKind::memory_pool, pool, call.pool); bad != CUDA_SUCCESS) {
    return bad;
  }
  if (const CUresult bad = access_to_wire(access, count, call.access); bad != CUDA_SUCCESS) {
    return bad;
  }
  calls::CuMemPoolSetAccess::Reply reply;
  return trip_in(current_context_id(), call, reply).told();
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  calls::CuMemPoolGetAccess call;
  if (const CUresult bad = to_wire(HandleKind::memory_pool, pool, call.memPool);
      bad != CUDA_SUCCESS) {
    return bad;
  }
  if (const CUresult bad = to_wire_device(location->id, call.device); bad != CUDA_SUCCESS) {
    return bad;
  }
  calls::CuMemPoolGetAccess::Reply reply;
  const CUresult result = trip_in(current_context_id(), call, reply).told();
  if (result == CUDA_SUCCESS) *flags = static_cast<CUmemAccess_flags>(reply.flags);
  return result;
}

}  // namespace headrace::client::families
