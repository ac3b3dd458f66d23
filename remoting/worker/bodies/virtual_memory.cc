// Virtual memory management (apispec/vmm.toml).
#include "worker/virtual_memory.h"

#include "worker/bodies/bodies.h"

namespace headrace::worker::bodies {
namespace {

CUmemAllocationProp properties_on(CUdevice device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

// Access descriptions as the driver takes them.
CUresult translate(const Session& session, const std::vector<calls::MemoryAccess>& from,
                   std::vector<CUmemAccessDesc>& to) {
  for (const calls::MemoryAccess& one : from) {
    CUmemAccessDesc access{};
    CUdevice device = 0;
    if (!session.find_device(one.device, device)) return CUDA_ERROR_INVALID_DEVICE;
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = static_cast<CUmemAccess_flags>(one.flags);
    to.push_back(access);
  }
  return CUDA_SUCCESS;
}

// Gives memory back that neither the client nor a mapping holds.
void drop_unused(Session& session, std::uint64_t handle) {
  VirtualMemory& all = session.virtual_memory();
  const auto found = all.physical.find(handle);
  if (found == all.physical.end()) return;
  const VirtualMemory::Physical& memory = found->second;
  if (memory.references != 0 || memory.mappings != 0) return;
  session.driver().cuMemRelease(memory.object);
  session.memory().give_back(memory.device, memory.charged);
  all.physical.erase(found);
}

void forget_mappings(Session& session, CUdeviceptr address, std::uint64_t size) {
  VirtualMemory& all = session.virtual_memory();
  for (auto at = all.mappings.lower_bound(address);
       at != all.mappings.end() && at->first - address < size;) {
    const std::uint64_t handle = at->second.memory;
    at = all.mappings.erase(at);
    --all.physical.at(handle).mappings;
    drop_unused(session, handle);
  }
}

}  // namespace

CUresult cuMemAddressReserve(Session& session, const calls::CuMemAddressReserve& call,
                             calls::CuMemAddressReserveReply& reply) {
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  VirtualMemory& all = session.virtual_memory();
  if (all.reserved.size() >= VirtualMemory::max_ranges) return CUDA_ERROR_OUT_OF_MEMORY;
  CUdeviceptr base = 0;
  const CUresult result = HEADRACE_DRIVER_CALL(session, cuMemAddressReserve, &base, call.size,
                                               call.alignment, call.addr, call.flags);
  if (result != CUDA_SUCCESS) return result;
  all.reserved[base] = call.size;
  reply.ptr = base;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(Session& session, const calls::CuMemAddressFree& call) {
  VirtualMemory& all = session.virtual_memory();
  const auto found = all.reserved.find(call.ptr);
  if (found == all.reserved.end() || found->second != call.size) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = HEADRACE_DRIVER_CALL(session, cuMemAddressFree, call.ptr, call.size);
  if (result == CUDA_SUCCESS) all.reserved.erase(found);
  return result;
}

CUresult cuMemGetAllocationGranularity(Session& session,
                                       const calls::CuMemGetAllocationGranularity& call,
                                       calls::CuMemGetAllocationGranularityReply& reply) {
  CUdevice device = 0;
  if (!session.find_device(call.device, device)) return CUDA_ERROR_INVALID_DEVICE;
  const CUmemAllocationProp properties = properties_on(device);
  std::size_t granularity = 0;
  const CUresult result =
      HEADRACE_DRIVER_CALL(session, cuMemGetAllocationGranularity, &granularity, &properties,
                           static_cast<CUmemAllocationGranularity_flags>(call.option));
  reply.granularity = granularity;
  return result;
}

CUresult cuMemCreate(Session& session, const calls::CuMemCreate& call) {
  VirtualMemory& all = session.virtual_memory();
  const SessionDevice* const granted = session.device_at(call.device);
  if (granted == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (handle_kind(call.memory) != HandleKind::allocation || handle_serial(call.memory) == 0 ||
      all.physical.contains(call.memory)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (call.size == 0 || call.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (call.size > granted->limit) return CUDA_ERROR_OUT_OF_MEMORY;
  const unsigned device = static_cast<unsigned>(call.device);
  const std::uint64_t charged = round_up(call.size, memory_granule);
  if (!session.memory().charge(device, charged)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUmemAllocationProp properties = properties_on(granted->device);
  VirtualMemory::Physical made;
  const CUresult result =
      HEADRACE_DRIVER_CALL(session, cuMemCreate, &made.object, call.size, &properties, 0);
  if (result != CUDA_SUCCESS) {
    session.memory().give_back(device, charged);
    return result;
  }
  made.charged = charged;
  made.device = device;
  all.physical[call.memory] = made;
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(Session& session, const calls::CuMemRelease& call) {
  VirtualMemory& all = session.virtual_memory();
  const auto found = all.physical.find(call.handle);
  if (found == all.physical.end() || found->second.references == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  --found->second.references;
  drop_unused(session, call.handle);
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(Session& session,
                                     const calls::CuMemRetainAllocationHandle& call,
                                     calls::CuMemRetainAllocationHandleReply& reply) {
  VirtualMemory& all = session.virtual_memory();
  const VirtualMemory::Mapping* const mapping = all.find(call.address);
  if (mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ++all.physical.at(mapping->memory).references;
  reply.memory = mapping->memory;
  return CUDA_SUCCESS;
}

CUresult cuMemMap(Session& session, const calls::CuMemMap& call) {
  VirtualMemory& all = session.virtual_memory();
  const auto found = all.physical.find(call.handle);
  if (found == all.physical.end() || found->second.references == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (all.mappings.size() >= VirtualMemory::max_ranges) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = HEADRACE_DRIVER_CALL(session, cuMemMap, call.ptr, call.size, call.offset,
                                               found->second.object, call.flags);
  if (result != CUDA_SUCCESS) return result;
  ++found->second.mappings;
  all.mappings[call.ptr] = {call.size, call.handle};
  return CUDA_SUCCESS;
}

std::optional<CUresult> cuMemUnmap(Session& session, std::uint32_t number,
                                   const calls::CuMemUnmap& call) {
  session.later().run_anywhere(
      [&session, call] { return HEADRACE_DRIVER_CALL(session, cuMemUnmap, call.ptr, call.size); },
      [&session, call, waiting = Waiting{calls::CuMemUnmap::kType, number}](CUresult result) {
        if (result == CUDA_SUCCESS) forget_mappings(session, call.ptr, call.size);
        session.answer(waiting, result);
      });
  return std::nullopt;
}

std::optional<CUresult> cuMemSetAccess(Session& session, std::uint32_t number,
                                       const calls::CuMemSetAccess& call) {
  std::vector<CUmemAccessDesc> access;
  if (CUresult bad = translate(session, call.access, access); bad != CUDA_SUCCESS) return bad;
  session.later().run_anywhere(
      [&session, access, address = call.ptr, size = call.size] {
        return HEADRACE_DRIVER_CALL(session, cuMemSetAccess, address, size, access.data(),
                                    access.size());
      },
      [&session, waiting = Waiting{calls::CuMemSetAccess::kType, number}](CUresult result) {
        session.answer(waiting, result);
      });
  return std::nullopt;
}

CUresult cuMemGetAccess(Session& session, const calls::CuMemGetAccess& call,
                        calls::CuMemGetAccessReply& reply) {
  CUmemLocation location{};
  CUdevice device = 0;
  if (!session.find_device(call.device, device)) return CUDA_ERROR_INVALID_DEVICE;
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  unsigned long long flags = 0;
  const CUresult result =
      HEADRACE_DRIVER_CALL(session, cuMemGetAccess, &flags, &location, call.ptr);
  reply.flags = flags;
  return result;
}

CUresult cuMemPoolSetAccess(Session& session, const calls::CuMemPoolSetAccess& call) {
  CUmemoryPool pool = nullptr;
  if (!session.find(HandleKind::memory_pool, call.pool, pool)) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<CUmemAccessDesc> access;
  if (CUresult bad = translate(session, call.access, access); bad != CUDA_SUCCESS) return bad;
  return HEADRACE_DRIVER_CALL(session, cuMemPoolSetAccess, pool, access.data(), access.size());
}

CUresult cuMemPoolGetAccess(Session& session, const calls::CuMemPoolGetAccess& call,
                            calls::CuMemPoolGetAccessReply& reply) {
  CUmemoryPool pool = nullptr;
  if (!session.find(HandleKind::memory_pool, call.memPool, pool)) return CUDA_ERROR_INVALID_HANDLE;
  CUmemLocation location{};
  CUdevice device = 0;
  if (!session.find_device(call.device, device)) return CUDA_ERROR_INVALID_DEVICE;
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  const CUresult result =
      HEADRACE_DRIVER_CALL(session, cuMemPoolGetAccess, &flags, pool, &location);
  reply.flags = flags;
  return result;
}

}  // namespace headrace::worker::bodies
