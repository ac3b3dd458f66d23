// Virtual memory management. A range of addresses is reserved in the window of the current
// context's device (of the first one without a context), so only memory of that device can be
// mapped there.
#include <cuda.h>

#include "remoting/softgpu/driver/runtime.h"
#include "remoting/softgpu/driver/virtual_memory.h"

namespace headrace::softgpu {
namespace {

using PhysicalPtr = std::shared_ptr<PhysicalMemory>;

bool whole_chunks(std::uint64_t size) { return size != 0 && size % kChunkBytes == 0; }

CUresult check(Runtime& runtime, const CUmemAllocationProp* properties) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (properties->allocFlags.usage != 0) return CUDA_ERROR_NOT_SUPPORTED;
  return runtime.device(properties->location.id) == nullptr ? CUDA_ERROR_INVALID_DEVICE
                                                            : CUDA_SUCCESS;
}

// Under physical_mutex: gives the memory back when nothing holds it any more.
void drop_unused(Runtime& runtime, const PhysicalPtr& memory) {
  if (memory->references != 0 || memory->mappings != 0) return;
  runtime.device(memory->properties.location.id)->memory()->give_physical(memory->chunks);
  runtime.physical.remove(memory->handle);
}

// Work may still use what is about to become inaccessible.
void wait_for_work(Runtime& runtime, const Device& device) {
  for (const ContextPtr& context : runtime.contexts.all()) {
    if (context->active() && &context->device() == &device) context->wait_all();
  }
}

// The device in whose window the address lies.
template <typename Body>
CUresult with_window(CUdeviceptr address, Body&& body) noexcept {
  return with_runtime([&](Runtime& runtime) -> CUresult {
    Device* device = runtime.device_of(address);
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return body(runtime, *device);
  });
}

}  // namespace

CUresult cuMemAddressReserve(CUdeviceptr* out, size_t size, size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  return with_runtime([&](Runtime& runtime) {
    if (out == nullptr || flags != 0 || !whole_chunks(size) || (alignment & (alignment - 1)) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    ContextPtr context;
    Device* device =
        runtime.current(&context) == CUDA_SUCCESS ? &context->device() : runtime.device(0);
    DeviceMemory* memory = device != nullptr ? device->memory() : nullptr;
    if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    // The wanted address is only a hint.
    const std::uint64_t base =
        memory->reserve(size, alignment < kChunkBytes ? kChunkBytes : alignment);
    if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = base;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAddressFree(CUdeviceptr base, size_t size) {
  return with_window(base, [&](Runtime&, Device& device) {
    return device.memory()->unreserve(base, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuMemGetAllocationGranularity(size_t* out, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags option) {
  return with_runtime([&](Runtime& runtime) {
    if (out == nullptr || option < CU_MEM_ALLOC_GRANULARITY_MINIMUM ||
        option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (CUresult bad = check(runtime, properties)) return bad;
    *out = kChunkBytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* out, size_t size,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  return with_runtime([&](Runtime& runtime) {
    if (out == nullptr || flags != 0 || !whole_chunks(size)) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult bad = check(runtime, properties)) return bad;
    Device& device = *runtime.device(properties->location.id);
    if (device.condition().refuses_allocation()) return CUDA_ERROR_OUT_OF_MEMORY;
    DeviceMemory* memory = device.memory();
    PhysicalPtr made = std::make_shared<PhysicalMemory>();
    if (memory == nullptr || !memory->take_physical(size, &made->chunks)) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->size = size;
    made->properties.type = properties->type;
    made->properties.location = properties->location;
    *out = runtime.physical.add(made);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return with_runtime([&](Runtime& runtime) {
    std::lock_guard<std::mutex> guard(runtime.physical_mutex);
    PhysicalPtr memory = runtime.physical.find(handle);
    if (memory == nullptr || memory->references == 0) return CUDA_ERROR_INVALID_VALUE;
    --memory->references;
    drop_unused(runtime, memory);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemMap(CUdeviceptr base, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  return with_window(base, [&](Runtime& runtime, Device& device) {
    std::lock_guard<std::mutex> guard(runtime.physical_mutex);
    PhysicalPtr memory = runtime.physical.find(handle);
    if (memory == nullptr || memory->references == 0 || offset != 0 || flags != 0 ||
        !whole_chunks(size) || base % kChunkBytes != 0 || size > memory->size) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (memory->properties.location.id != device.ordinal) return CUDA_ERROR_NOT_SUPPORTED;
    if (!device.memory()->map(base, size, handle, memory->chunks)) return CUDA_ERROR_INVALID_VALUE;
    ++memory->mappings;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemUnmap(CUdeviceptr base, size_t size) {
  return with_window(base, [&](Runtime& runtime, Device& device) {
    wait_for_work(runtime, device);
    std::lock_guard<std::mutex> guard(runtime.physical_mutex);
    std::vector<std::uint64_t> handles;
    if (!device.memory()->unmap_all(base, size, &handles)) return CUDA_ERROR_INVALID_VALUE;
    for (std::uint64_t handle : handles) {
      PhysicalPtr memory = runtime.physical.find(handle);
      --memory->mappings;
      drop_unused(runtime, memory);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemSetAccess(CUdeviceptr base, size_t size, const CUmemAccessDesc* access,
                        size_t count) {
  return with_window(base, [&](Runtime& runtime, Device& device) {
    if (access == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
      if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
      if (runtime.device(access[i].location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
      // Other devices cannot reach it, and kernels' accesses are not told apart by direction.
      if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) continue;
      if (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
          access[i].location.id != device.ordinal) {
        return CUDA_ERROR_NOT_SUPPORTED;
      }
    }
    for (size_t i = 0; i < count; ++i) {
      if (access[i].location.id != device.ordinal) continue;
      const bool accessible = access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      if (!accessible) wait_for_work(runtime, device);
      if (!device.memory()->set_access(base, size, accessible)) return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr address) {
  return with_window(address, [&](Runtime&, Device& device) {
    Mapping mapping;
    if (flags == nullptr || location == nullptr ||
        !device.memory()->find_mapping(address, &mapping)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const bool own =
        location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id == device.ordinal;
    *flags = own && mapping.accessible ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                       : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out,
                                                CUmemGenericAllocationHandle handle) {
  return with_runtime([&](Runtime& runtime) {
    PhysicalPtr memory = runtime.physical.find(handle);
    if (out == nullptr || memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = memory->properties;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* pointer) {
  const CUdeviceptr address = reinterpret_cast<CUdeviceptr>(pointer);
  return with_window(address, [&](Runtime& runtime, Device& device) {
    std::lock_guard<std::mutex> guard(runtime.physical_mutex);
    Mapping mapping;
    if (out == nullptr || !device.memory()->find_mapping(address, &mapping)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    ++runtime.physical.find(mapping.handle)->references;
    *out = mapping.handle;
    return CUDA_SUCCESS;
  });
}

}  // namespace headrace::softgpu
