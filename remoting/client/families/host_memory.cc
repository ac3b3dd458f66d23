// Page-locked host memory: memory of this process. Nothing of it is mapped on the server, so it has
// no device address yet.
#include <sys/mman.h>
#include <unistd.h>

#include <optional>

#include "client/host_pages.h"
#include "client/process.h"
#include "client/remote.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

std::size_t whole_pages(std::size_t size) {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (size + page - 1) / page * page;
}

}  // namespace

CUresult cuMemHostAlloc(void** out, std::size_t size, unsigned int flags) {
  constexpr unsigned known =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (out == nullptr || size == 0 || (flags & ~known) != 0 || size > SIZE_MAX / 2) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint64_t base = take_pages(whole_pages(size));
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  MemoryRange range;
  range.base = base;
  range.size = size;
  range.kind = RangeKind::host_allocated;
  range.context = context;
  range.flags = flags;
  if (!process().memory.insert(range)) {
    // Device memory of the server lies at the same address: another try gets other pages.
    const std::uint64_t again = take_pages(whole_pages(size));
    release_pages(base, whole_pages(size));
    range.base = again;
    if (again == 0 || !process().memory.insert(range)) {
      if (again != 0) release_pages(again, whole_pages(size));
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  *out = reinterpret_cast<void*>(range.base);
  return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void** out, std::size_t size) { return cuMemHostAlloc(out, size, 0); }

CUresult cuMemFreeHost(void* pointer) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  const std::optional<MemoryRange> range =
      process().memory.take(address_of(pointer), RangeKind::host_allocated);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  release_pages(range->base, whole_pages(range->size));
  return CUDA_SUCCESS;
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
  return process().memory.insert(range) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult cuMemHostUnregister(void* pointer) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return process().memory.take(address_of(pointer), RangeKind::host_registered)
             ? CUDA_SUCCESS
             : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemHostGetFlags(unsigned int* flags, void* pointer) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::optional<MemoryRange> range = process().memory.find(address_of(pointer));
  if (!range || !range->host()) return CUDA_ERROR_INVALID_VALUE;
  *flags = range->flags;
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* pointer, unsigned int flags) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::optional<MemoryRange> range = process().memory.find(address_of(pointer));
  if (!range || !range->host()) return CUDA_ERROR_INVALID_VALUE;
  // Kernels cannot reach this memory: better no address than one that faults later.
  log_line("cuMemHostGetDevicePointer: kernels on the server cannot reach host memory yet");
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace headrace::client::families
