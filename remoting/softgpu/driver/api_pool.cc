// Stream-ordered allocation and memory pools.
#include <cuda.h>

#include <cstring>

#include "remoting/softgpu/driver/capture.h"
#include "remoting/softgpu/driver/memory_pool.h"
#include "remoting/softgpu/driver/runtime.h"

namespace headrace::softgpu {
namespace {

using PoolPtr = std::shared_ptr<MemoryPool>;

CUmemoryPool handle_of(const PoolPtr& pool) { return to_handle<CUmemoryPool>(pool->handle); }

template <typename Body>
CUresult with_pool(CUmemoryPool handle, Body&& body) noexcept {
  return with_runtime([&](Runtime& runtime) -> CUresult {
    PoolPtr pool = runtime.pools.find(handle);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return body(runtime, pool);
  });
}

CUresult allocate(Runtime& runtime, ContextPtr& context, StreamPtr& stream, PoolPtr pool,
                  std::size_t bytes, CUdeviceptr* out) {
  if (out == nullptr || bytes == 0 || pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (Graphs::Verdict forbidden = capture_forbids(*context, *stream)) return *forbidden;
  Device* device = runtime.device(pool->device);
  DeviceMemory* memory = device != nullptr ? device->memory() : nullptr;
  if (memory == nullptr || device->condition().refuses_allocation()) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (pool->max_size != 0) {
    std::lock_guard<std::mutex> guard(pool->mutex);
    if (pool->used + bytes > pool->max_size) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  std::uint64_t base = memory->allocate(bytes, context->handle, pool->handle, false);
  if (base == 0) {
    // Frees that this stream has not reached yet come before the allocation.
    context->wait(stream);
    base = memory->allocate(bytes, context->handle, pool->handle, false);
  }
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  pool->took(bytes);
  *out = base;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream handle) {
  return with_stream(handle, [&](Runtime& runtime, ContextPtr& context, StreamPtr& stream) {
    return allocate(runtime, context, stream, runtime.pools.find(context->device().current_pool),
                    bytes, out);
  });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool pool,
                                 CUstream handle) {
  return with_stream(handle, [&](Runtime& runtime, ContextPtr& context, StreamPtr& stream) {
    return allocate(runtime, context, stream, runtime.pools.find(pool), bytes, out);
  });
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  return with_stream(handle, [&](Runtime& runtime, ContextPtr& context, StreamPtr& stream) {
    if (address == 0) return CUDA_SUCCESS;
    if (Graphs::Verdict forbidden = capture_forbids(*context, *stream)) return *forbidden;
    Device* device = runtime.device_of(address);
    Allocation allocation;
    if (device == nullptr || !device->memory()->find(address, &allocation) ||
        allocation.base != address || allocation.internal) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    PoolPtr pool = runtime.pools.find(allocation.pool);
    auto give = [device, address, pool, bytes = allocation.size] {
      if (device->memory()->free(address) && pool != nullptr) pool->gave(bytes);
      return CUDA_SUCCESS;
    };
    if (context->idle(stream)) return give();
    context->submit(stream, give);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice ordinal) {
  return with_runtime([&](Runtime& runtime) {
    Device* device = runtime.device(ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = to_handle<CUmemoryPool>(device->default_pool);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetMemPool(CUmemoryPool* out, CUdevice ordinal) {
  return with_runtime([&](Runtime& runtime) {
    Device* device = runtime.device(ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> guard(device->primary_mutex);
    *out = to_handle<CUmemoryPool>(device->current_pool);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
  return with_pool(handle, [&](Runtime& runtime, PoolPtr& pool) {
    Device* device = runtime.device(ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (pool->device != ordinal) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> guard(device->primary_mutex);
    device->current_pool = pool->handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* properties) {
  return with_runtime([&](Runtime& runtime) {
    if (out == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (runtime.device(properties->location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    PoolPtr pool = std::make_shared<MemoryPool>(properties->location.id, false);
    pool->max_size = properties->maxSize;
    runtime.pools.add(pool);
    *out = handle_of(pool);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  return with_pool(handle, [&](Runtime& runtime, PoolPtr& pool) {
    if (pool->is_default) return CUDA_ERROR_NOT_SUPPORTED;
    Device* device = runtime.device(pool->device);
    {
      std::lock_guard<std::mutex> guard(device->primary_mutex);
      if (device->current_pool == pool->handle) device->current_pool = device->default_pool;
    }
    runtime.pools.remove(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t) {
  return with_pool(handle, [](Runtime&, PoolPtr&) { return CUDA_SUCCESS; });
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute which, void* value) {
  return with_pool(handle, [&](Runtime&, PoolPtr& pool) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> guard(pool->mutex);
    switch (which) {
      case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        std::memcpy(&pool->reuse[which - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES], value,
                    sizeof(int));
        return CUDA_SUCCESS;
      case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        std::memcpy(&pool->release_threshold, value, sizeof(cuuint64_t));
        return CUDA_SUCCESS;
      case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      case CU_MEMPOOL_ATTR_USED_MEM_HIGH: {
        cuuint64_t zero = 1;
        std::memcpy(&zero, value, sizeof zero);
        if (zero != 0) return CUDA_ERROR_INVALID_VALUE;  // can only be reset
        pool->used_high = pool->used;
        return CUDA_SUCCESS;
      }
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute which, void* value) {
  return with_pool(handle, [&](Runtime&, PoolPtr& pool) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> guard(pool->mutex);
    cuuint64_t number = 0;
    switch (which) {
      case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        std::memcpy(value, &pool->reuse[which - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES],
                    sizeof(int));
        return CUDA_SUCCESS;
      case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        number = pool->release_threshold;
        break;
      case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        number = pool->used;
        break;
      case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        number = pool->used_high;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::memcpy(value, &number, sizeof number);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* access, size_t count) {
  return with_pool(handle, [&](Runtime&, PoolPtr& pool) {
    for (size_t i = 0; i < count; ++i) {
      if (access == nullptr) return CUDA_ERROR_INVALID_VALUE;
      // A pool is reachable from its own device, and cannot be made unreachable.
      if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
          access[i].location.id != pool->device ||
          access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        return CUDA_ERROR_INVALID_DEVICE;
      }
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle,
                            CUmemLocation* location) {
  return with_pool(handle, [&](Runtime&, PoolPtr& pool) {
    if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    bool own = location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id == pool->device;
    *flags = own ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  });
}

}  // namespace headrace::softgpu
