// Allocation of device and pinned host memory, and what is known about an address.
#include <cuda.h>

#include <cstring>

#include "remoting/softgpu/driver/capture.h"
#include "remoting/softgpu/driver/memory_pool.h"
#include "remoting/softgpu/driver/runtime.h"

namespace headrace::softgpu {
namespace {

constexpr std::size_t kPitchUnit = 512;

CUresult allocate(ContextPtr& context, std::size_t bytes, CUdeviceptr* out) {
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (context->condition().refuses_allocation()) return CUDA_ERROR_OUT_OF_MEMORY;
  DeviceMemory* memory = context->device().memory();
  std::uint64_t base = memory != nullptr ? memory->allocate(bytes, context->handle, 0, false) : 0;
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = base;
  return CUDA_SUCCESS;
}

CUresult allocate_host(void** out, std::size_t bytes, unsigned flags) {
  return with_context([&](Runtime& runtime, ContextPtr& context) {
    constexpr unsigned kKnown =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (out == nullptr || bytes == 0 || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
    std::uint64_t base = runtime.host_memory().allocate(bytes, context->handle, flags);
    if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = reinterpret_cast<void*>(base);
    return CUDA_SUCCESS;
  });
}

// All that is known about an address, device or host.
struct Known {
  bool device = false;
  bool host = false;
  Device* owner = nullptr;
  Allocation allocation;
  HostBlock block;
};

Known look_up(Runtime& runtime, std::uint64_t address) {
  Known out;
  out.owner = runtime.device_of(address);
  if (out.owner != nullptr) {
    out.device = out.owner->memory()->find(address, &out.allocation);
  } else {
    out.host = runtime.host_memory().find(address, &out.block);
  }
  return out;
}

template <typename T>
CUresult put(void* out, T value) {
  std::memcpy(out, &value, sizeof value);
  return CUDA_SUCCESS;
}

CUresult attribute(Runtime& runtime, const Known& known, std::uint64_t address,
                   CUpointer_attribute which, void* out) {
  const std::uint64_t context = known.device ? known.allocation.context : known.block.context;
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      // Memory of a pool belongs to no context.
      return put(out, to_handle<CUcontext>(known.allocation.pool != 0 ? 0 : context));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(out, known.device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put(out, CUdeviceptr{address});
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (known.device) return CUDA_ERROR_INVALID_VALUE;
      return put(out, reinterpret_cast<void*>(address));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return put(out, 0u);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put(out, static_cast<unsigned long long>(known.device ? known.allocation.id
                                                                   : known.block.id));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: {
      ContextPtr owner = runtime.contexts.find(context);
      if (known.owner != nullptr) return put(out, static_cast<int>(known.owner->ordinal));
      return put(out, owner != nullptr ? static_cast<int>(owner->device().ordinal) : 0);
    }
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put(out, CUdeviceptr{known.device ? known.allocation.base : known.block.base});
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return put(out, std::size_t{known.device ? known.allocation.size : known.block.size});
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put(out, 1u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put(out, std::uint64_t{0});
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put(out, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(out, to_handle<CUmemoryPool>(known.device ? known.allocation.pool : 0));
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// Size of the value of an attribute in cuPointerGetAttributes, to clear it for unknown addresses.
std::size_t attribute_bytes(CUpointer_attribute which) {
  switch (which) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return 4;
    default:
      return 8;
  }
}

}  // namespace

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return with_context([&](Runtime&, ContextPtr& context) {
    DeviceMemory* memory = context->device().memory();
    if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *free = memory->free_bytes();
    *total = memory->total_bytes();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  return with_context([&](Runtime&, ContextPtr& context) {
    if (Graphs::Verdict upset = capture_upset()) return *upset;
    return allocate(context, bytes, out);
  });
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height,
                            unsigned int element) {
  return with_context([&](Runtime&, ContextPtr& context) {
    if (pitch == nullptr || width == 0 || height == 0 || width > (std::size_t{1} << 48) ||
        (element != 4 && element != 8 && element != 16)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::size_t row = (width + kPitchUnit - 1) / kPitchUnit * kPitchUnit;
    if (height > (std::size_t{1} << 60) / row) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = allocate(context, row * height, out);
    if (result == CUDA_SUCCESS) *pitch = row;
    return result;
  });
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  return with_context([&](Runtime& runtime, ContextPtr& context) {
    if (address == 0) return CUDA_SUCCESS;
    if (Graphs::Verdict upset = capture_upset()) return *upset;
    Device* device = runtime.device_of(address);
    Allocation allocation;
    if (device == nullptr || !device->memory()->find(address, &allocation) ||
        allocation.base != address || allocation.internal) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    // Kernels that run may still use it, also those of its own context if that is another one.
    context->wait_all();
    ContextPtr owner = runtime.contexts.find(allocation.context);
    if (owner != nullptr && owner != context) owner->wait_all();
    if (!device->memory()->free(address)) return CUDA_ERROR_INVALID_VALUE;
    if (std::shared_ptr<MemoryPool> pool = runtime.pools.find(allocation.pool)) {
      pool->gave(allocation.size);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  return with_context([&](Runtime& runtime, ContextPtr&) {
    Known known = look_up(runtime, address);
    if (!known.device && !(known.host && !known.block.registered)) return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr) *base = known.device ? known.allocation.base : known.block.base;
    if (bytes != nullptr) *bytes = known.device ? known.allocation.size : known.block.size;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAllocHost_v2(void** out, size_t bytes) { return allocate_host(out, bytes, 0); }
CUresult cuMemHostAlloc(void** out, size_t bytes, unsigned int flags) {
  return allocate_host(out, bytes, flags);
}

CUresult cuMemFreeHost(void* pointer) {
  return with_context([&](Runtime& runtime, ContextPtr& context) {
    if (pointer == nullptr) return CUDA_SUCCESS;
    context->wait_all();
    return runtime.host_memory().free(reinterpret_cast<std::uint64_t>(pointer))
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned int flags) {
  return with_context([&](Runtime& runtime, ContextPtr& context) {
    std::uint64_t base = reinterpret_cast<std::uint64_t>(pointer);
    if (pointer == nullptr || bytes == 0 || base + bytes < base) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & ~0xfu) != 0) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    return runtime.host_memory().add_registered(base, bytes, context->handle, flags)
               ? CUDA_SUCCESS
               : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  });
}
CUresult cuMemHostRegister(void* pointer, size_t bytes, unsigned int flags) {
  return softgpu::cuMemHostRegister_v2(pointer, bytes, flags);
}

CUresult cuMemHostUnregister(void* pointer) {
  return with_context([&](Runtime& runtime, ContextPtr& context) {
    if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
    context->wait_all();
    return runtime.host_memory().remove_registered(reinterpret_cast<std::uint64_t>(pointer))
               ? CUDA_SUCCESS
               : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* pointer, unsigned int flags) {
  return with_context([&](Runtime& runtime, ContextPtr&) {
    HostBlock block;
    if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (!runtime.host_memory().find(reinterpret_cast<std::uint64_t>(pointer), &block)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *out = reinterpret_cast<std::uint64_t>(pointer);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostGetFlags(unsigned int* flags, void* pointer) {
  return with_context([&](Runtime& runtime, ContextPtr&) {
    HostBlock block;
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!runtime.host_memory().find(reinterpret_cast<std::uint64_t>(pointer), &block) ||
        block.registered) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = block.flags | CU_MEMHOSTALLOC_DEVICEMAP;  // implied by unified addressing
    return CUDA_SUCCESS;
  });
}

CUresult cuPointerGetAttribute(void* out, CUpointer_attribute which, CUdeviceptr address) {
  return with_runtime([&](Runtime& runtime) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Known known = look_up(runtime, address);
    if (!known.device && !known.host) return CUDA_ERROR_INVALID_VALUE;
    return attribute(runtime, known, address, which, out);
  });
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* which, void** out,
                                CUdeviceptr address) {
  return with_runtime([&](Runtime& runtime) {
    if (count == 0 || which == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Known known = look_up(runtime, address);
    for (unsigned i = 0; i < count; ++i) {
      if (out[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      // Unlike the single query, an address that is not known is no error: its values are zero.
      bool found = known.device || known.host;
      if (!found || attribute(runtime, known, address, which[i], out[i]) != CUDA_SUCCESS) {
        if (which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
          put(out[i], -2);  // what the driver answers for memory it does not know
        } else {
          std::memset(out[i], 0, attribute_bytes(which[i]));
        }
      }
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute which, CUdeviceptr address) {
  return with_runtime([&](Runtime& runtime) {
    if (value == nullptr || which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    // Copies that touch the host are synchronous to each other already.
    return look_up(runtime, address).device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

}  // namespace headrace::softgpu
