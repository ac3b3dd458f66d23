// Page-locked host memory: memory of this process, with a twin at the server once kernels may use
// it (host_twins.h).
#include <optional>

#include "client/process.h"
#include "client/remote.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

// The server keeps these addresses free for twins of our pages.
bool set_aside(const Context& context, std::uint64_t address, std::uint64_t bytes,
               CUresult& deferred) {
  calls::CuMemHostAlloc call;
  call.address = address;
  call.bytes = bytes;
  calls::CuMemHostAlloc::Reply reply;
  const TripResult outcome = trip_in(context.id, call, reply);
  if (deferred == CUDA_SUCCESS) deferred = outcome.deferred;
  return outcome.result == CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemHostAlloc(void** out, std::size_t size, unsigned int flags) {
  constexpr unsigned known =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (out == nullptr || size == 0 || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (size > SIZE_MAX / 4) return CUDA_ERROR_OUT_OF_MEMORY;
  Process& here = process();
  HostPages& pages = here.host_twins.pages();
  CUresult deferred = CUDA_SUCCESS;
  const HostPages::Agree agree = [&](std::uint64_t address, std::uint64_t bytes) {
    return set_aside(*context, address, bytes, deferred);
  };
  MemoryRange range;
  range.size = size;
  range.kind = RangeKind::host_allocated;
  range.context = context;
  range.flags = flags;
  // Device memory of the server may lie at the same address: another try gets other pages.
  std::uint64_t collided = 0;
  for (int i = 0; i < 2; ++i) {
    range.base = pages.take(size, agree);
    if (deferred != CUDA_SUCCESS) {  // an error of work before this call, which has been told now
      if (range.base != 0) pages.release(range.base, size);
      return deferred;
    }
    if (range.base == 0 || here.memory.insert(range)) break;
    if (i == 0) {
      collided = range.base;
    } else {
      pages.release(range.base, size);
    }
    range.base = 0;
  }
  if (collided != 0) pages.release(collided, size);
  if (range.base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  here.host_twins.add(range);
  *out = reinterpret_cast<void*>(range.base);
  return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void** out, std::size_t size) { return cuMemHostAlloc(out, size, 0); }

CUresult cuMemFreeHost(void* pointer) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (pointer == nullptr) return CUDA_SUCCESS;
  Process& here = process();
  const std::optional<MemoryRange> range =
      here.memory.take(address_of(pointer), RangeKind::host_allocated);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = here.host_twins.end(*range);
  here.host_twins.pages().release(range->base, range->size);
  return result;
}

CUresult cuMemHostRegister_v2(void* pointer, std::size_t size, unsigned int flags) {
  constexpr unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if ((flags & (CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY)) != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (pointer == nullptr || size == 0 || (flags & ~known) != 0 ||
      size > UINT64_MAX - address_of(pointer)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  MemoryRange range;
  range.base = address_of(pointer);
  range.size = size;
  range.kind = RangeKind::host_registered;
  range.context = context;
  range.flags = flags;
  Process& here = process();
  if (!here.memory.insert(range)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  here.host_twins.add(range);
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* pointer) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Process& here = process();
  const std::optional<MemoryRange> range =
      here.memory.take(address_of(pointer), RangeKind::host_registered);
  return range ? here.host_twins.end(*range) : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemHostGetFlags(unsigned int* flags, void* pointer) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::optional<MemoryRange> range = process().memory.find(address_of(pointer));
  // As documented, only memory that CUDA has allocated has flags.
  if (!range || range->kind != RangeKind::host_allocated) return CUDA_ERROR_INVALID_VALUE;
  *flags = range->flags | CU_MEMHOSTALLOC_DEVICEMAP;  // implied by unified addressing
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* pointer, unsigned int flags) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::optional<MemoryRange> range = process().memory.find(address_of(pointer));
  if (!range || !range->host()) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = process().host_twins.share(range->base); bad != CUDA_SUCCESS) return bad;
  *out = address_of(pointer);
  return CUDA_SUCCESS;
}

}  // namespace headrace::client::families
