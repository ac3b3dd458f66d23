// Virtual memory management. The handles of physical memory are ours; where they are mapped is
// recorded, so that copies and pointer queries know the memory.
#include <mutex>
#include <unordered_map>

#include "client/allocations.h"
#include "client/process.h"
#include "client/remote.h"
#include "gen/client_families.h"

namespace headrace::client {

CUresult access_to_wire(const CUmemAccessDesc* access, std::size_t count,
                        std::vector<calls::MemoryAccess>& out) {
  constexpr std::size_t most = 64;
  if (access == nullptr || count == 0 || count > most) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    calls::MemoryAccess wire;
    if (const CUresult bad = to_wire_device(access[i].location.id, wire.device);
        bad != CUDA_SUCCESS) {
      return bad;
    }
    wire.flags = access[i].flags;
    out.push_back(wire);
  }
  return CUDA_SUCCESS;
}

}  // namespace headrace::client

namespace headrace::client::families {
namespace {

// Which device each handle's memory lies on. Kept for the life of the process: handles are few.
struct Physical {
  std::mutex mutex;
  std::unordered_map<std::uint64_t, Device*> devices;  // under mutex
};

Physical& physical() {
  static Physical* const made = new Physical;
  return *made;
}

Device* device_of(std::uint64_t handle) {
  Physical& all = physical();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.devices.find(handle);
  return found == all.devices.end() ? nullptr : found->second;
}

CUresult check(const CUmemAllocationProp* properties, Device*& device) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE ||
      properties->allocFlags.usage != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  device = process().device(properties->location.id);
  return device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

// These calls need no context of the program's.
template <typename Call>
CUresult ask(const Call& call, typename Call::Reply& reply) {
  return trip_in(current_context_id(), call, reply).told();
}

template <typename Call>
CUresult ask(const Call& call) {
  typename Call::Reply reply;
  return ask(call, reply);
}

}  // namespace

CUresult cuMemAddressReserve(CUdeviceptr* out, std::size_t size, std::size_t alignment,
                             CUdeviceptr wanted, unsigned long long flags) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (out == nullptr || size == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  calls::CuMemAddressReserve call;
  call.size = size;
  call.alignment = alignment;
  call.addr = wanted;
  calls::CuMemAddressReserve::Reply reply;
  const CUresult result = ask(call, reply);
  if (result == CUDA_SUCCESS) *out = reply.ptr;
  return result;
}

CUresult cuMemAddressFree(CUdeviceptr base, std::size_t size) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  calls::CuMemAddressFree call;
  call.ptr = base;
  call.size = size;
  return ask(call);
}

CUresult cuMemGetAllocationGranularity(std::size_t* out, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags option) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  if (const CUresult bad = check(properties, device); bad != CUDA_SUCCESS) return bad;
  calls::CuMemGetAllocationGranularity call;
  call.option = option;
  call.device = device->wire_ordinal;
  calls::CuMemGetAllocationGranularity::Reply reply;
  const CUresult result = ask(call, reply);
  if (result == CUDA_SUCCESS) *out = reply.granularity;
  return result;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* out, std::size_t size,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (out == nullptr || size == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  if (const CUresult bad = check(properties, device); bad != CUDA_SUCCESS) return bad;
  calls::CuMemCreate call;
  call.memory = process().handles.make(HandleKind::allocation);
  call.size = size;
  call.device = device->wire_ordinal;
  calls::CuMemCreate::Reply reply;
  const TripResult outcome = trip_in(current_context_id(), call, reply);
  if (outcome.told() != CUDA_SUCCESS) {
    if (outcome.result == CUDA_SUCCESS) {  // made, but the program is told of an older failure
      calls::CuMemRelease back;
      back.handle = call.memory;
      send_in(current_context_id(), back);
    }
    return outcome.told();
  }
  Physical& all = physical();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.devices[call.memory] = device;
  *out = call.memory;
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  calls::CuMemRelease call;
  call.handle = handle;
  return ask(call);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* pointer) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  calls::CuMemRetainAllocationHandle call;
  call.address = reinterpret_cast<std::uint64_t>(pointer);
  calls::CuMemRetainAllocationHandle::Reply reply;
  const CUresult result = ask(call, reply);
  if (result == CUDA_SUCCESS) *out = reply.memory;
  return result;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out,
                                                CUmemGenericAllocationHandle handle) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  Device* const device = device_of(handle);
  if (out == nullptr || device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = CUmemAllocationProp{};
  out->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  out->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  out->location.id = device->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr base, std::size_t size, std::size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  Device* const device = device_of(handle);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  calls::CuMemMap call;
  call.ptr = base;
  call.size = size;
  call.offset = offset;
  call.handle = handle;
  call.flags = flags;
  calls::CuMemMap::Reply reply;
  const TripResult outcome = trip_in(current_context_id(), call, reply);
  if (outcome.result == CUDA_SUCCESS) {
    MemoryRange range;
    range.base = base;
    range.size = size;
    range.physical = handle;
    range.mapped_on = device;
    range.accessible = false;
    process().memory.insert(range);
  }
  return outcome.told();
}

CUresult cuMemUnmap(CUdeviceptr base, std::size_t size) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  calls::CuMemUnmap call;
  call.ptr = base;
  call.size = size;
  calls::CuMemUnmap::Reply reply;
  const TripResult outcome = trip_in(current_context_id(), call, reply);
  if (outcome.result == CUDA_SUCCESS) process().memory.take_mapped(base, size);
  return outcome.told();
}

CUresult cuMemSetAccess(CUdeviceptr base, std::size_t size, const CUmemAccessDesc* access,
                        std::size_t count) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  calls::CuMemSetAccess call;
  call.ptr = base;
  call.size = size;
  if (const CUresult bad = access_to_wire(access, count, call.access); bad != CUDA_SUCCESS) {
    return bad;
  }
  calls::CuMemSetAccess::Reply reply;
  const TripResult outcome = trip_in(current_context_id(), call, reply);
  if (outcome.result == CUDA_SUCCESS) {
    // Copies to what may only be read, or only by some devices, are left to the server's check.
    bool accessible = true;
    for (std::size_t i = 0; i < count; ++i) {
      accessible = accessible && access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    process().memory.set_accessible(base, size, accessible);
  }
  return outcome.told();
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr address) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  calls::CuMemGetAccess call;
  call.ptr = address;
  if (const CUresult bad = to_wire_device(location->id, call.device); bad != CUDA_SUCCESS) {
    return bad;
  }
  calls::CuMemGetAccess::Reply reply;
  const CUresult result = ask(call, reply);
  if (result == CUDA_SUCCESS) *flags = reply.flags;
  return result;
}

}  // namespace headrace::client::families
