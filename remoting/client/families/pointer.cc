// What a pointer is. Libraries decide by these answers how to copy, so each kind of memory must be
// told as CUDA tells it, whatever context is current.
#include <cstring>
#include <optional>

#include "client/process.h"
#include "client/remote.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

template <typename T>
void store(void* data, const T& value) {
  std::memcpy(data, &value, sizeof value);
}

// False when the attribute does not exist for this memory. Without a range: the value that CUDA's
// plural query gives for memory it does not know.
bool answer(CUpointer_attribute attribute, std::uint64_t address,
            const std::optional<MemoryRange>& range, void* data) {
  const bool device = range && !range->host();
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      // Memory of a pool, and what is mapped, belong to none.
      store(data, range && range->context != nullptr && !range->pooled ? range->context->handle()
                                                                       : CUcontext{});
      return range.has_value();
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      store(data, !range
                      ? 0U
                      : static_cast<unsigned>(device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST));
      return range.has_value();
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      store(data, range ? CUdeviceptr{address} : CUdeviceptr{0});
      return range.has_value();
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      store(data, range && !device ? address : std::uint64_t{0});
      return range && !device;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      store(data, range && range->sync_memops ? 1U : 0U);
      return range.has_value();
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      store(data, range ? static_cast<unsigned long long>(range->id) : 0ULL);
      return range.has_value();
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      store(data, 0U);
      return range.has_value();
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      store(data, !range            ? -2  // CU_DEVICE_INVALID
                  : range->mapped() ? range->mapped_on->ordinal
                                    : range->context->device->ordinal);
      return range.has_value();
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      store(data, 0U);
      return range.has_value();
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      store(data, range ? range->base : std::uint64_t{0});
      return range.has_value();
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      store(data, range ? range->size : std::uint64_t{0});
      return range.has_value();
    case CU_POINTER_ATTRIBUTE_MAPPED:
      store(data, range ? 1U : 0U);
      return range.has_value();
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      store(data, std::uint64_t{0});
      return range.has_value();
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      store(data, !range ? 0U : static_cast<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE));
      return range.has_value();
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      // Which pool is not recorded; memory of no pool has none.
      store(data, CUmemoryPool{});
      return range && !range->pooled;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      store(data, range ? static_cast<unsigned long long>(range->id) : 0ULL);
      return range.has_value();
    default:
      return false;
  }
}

bool known_attribute(CUpointer_attribute attribute) {
  return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT &&
         attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE &&
         attribute != CU_POINTER_ATTRIBUTE_P2P_TOKENS;
}

}  // namespace

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (data == nullptr || !known_attribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
  const std::optional<MemoryRange> range = process().memory.find(address);
  std::uint64_t value[2] = {};
  if (!range || !answer(attribute, address, range, value)) return CUDA_ERROR_INVALID_VALUE;
  answer(attribute, address, range, data);
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr address) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (count == 0 || attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::optional<MemoryRange> range = process().memory.find(address);
  for (unsigned i = 0; i < count; ++i) {
    if (data[i] == nullptr || !known_attribute(attributes[i])) return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned i = 0; i < count; ++i) answer(attributes[i], address, range, data[i]);
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                               CUdeviceptr address) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  unsigned wanted = 0;
  std::memcpy(&wanted, value, sizeof wanted);
  return process().memory.set_sync_memops(address, wanted != 0) ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace headrace::client::families
