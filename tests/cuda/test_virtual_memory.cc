// Addresses and physical memory apart, access of pools, and attributes of streams.
#include <doctest/doctest.h>

#include <cstring>

#include "tests/cuda/driver.h"

namespace {

CUmemAllocationProp on_device(CUdevice device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

CUmemAccessDesc access_of(CUdevice device, CUmemAccess_flags flags) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = flags;
  return access;
}

std::size_t granularity(CUdevice device) {
  const CUmemAllocationProp properties = on_device(device);
  std::size_t unit = 0;
  CU_OK(cu.cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  REQUIRE(unit != 0);
  REQUIRE((unit & (unit - 1)) == 0);
  return unit;
}

}  // namespace

TEST_SUITE_BEGIN("virtual memory");

TEST_CASE("two pieces of physical memory side by side are one run of memory") {
  Primary primary;
  int supported = 0;
  CU_OK(cu.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                primary.device));
  REQUIRE(supported == 1);
  const std::size_t unit = granularity(primary.device);
  const CUmemAllocationProp properties = on_device(primary.device);
  CUdeviceptr base = 0;
  CU_OK(cu.cuMemAddressReserve(&base, 4 * unit, 0, 0, 0));
  CUmemGenericAllocationHandle first = 0, second = 0;
  CU_OK(cu.cuMemCreate(&first, unit, &properties, 0));
  CU_OK(cu.cuMemCreate(&second, unit, &properties, 0));
  CU_OK(cu.cuMemMap(base, unit, 0, first, 0));
  CU_OK(cu.cuMemMap(base + unit, unit, 0, second, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemAddressFree(base, 4 * unit));  // still mapped

  const CUmemAccessDesc access = access_of(primary.device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CU_OK(cu.cuMemSetAccess(base, 2 * unit, &access, 1));
  unsigned long long flags = 0;
  CU_OK(cu.cuMemGetAccess(&flags, &access.location, base + unit));
  CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

  // Copies, fills and kernels reach across the seam.
  const std::vector<std::uint8_t> bytes = pattern(64 << 10, 5);
  const CUdeviceptr across = base + unit - (32 << 10);
  CU_OK(cu.cuMemcpyHtoD_v2(across, bytes.data(), bytes.size()));
  CHECK(download<std::uint8_t>(across, bytes.size()) == bytes);
  CU_OK(cu.cuMemsetD32_v2(across, 21, 16 << 10));
  Kernels kernels;
  std::uint32_t multiplier = 2, addend = 0;
  CUdeviceptr last = base + 2 * unit - 4;
  CU_OK(cu.cuMemsetD32_v2(last, 21, 1));
  CU_OK(launch(kernels["step"], 1, 1, nullptr, {&last, &multiplier, &addend}));
  CHECK(download<std::uint32_t>(last, 1) == std::vector<std::uint32_t>{42});
  CHECK(download<std::uint32_t>(across + 4, 1) == std::vector<std::uint32_t>{21});

  // Neither an allocation nor of a context.
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(base));
  CUcontext owner = primary.context;
  CU_OK(cu.cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, base));
  CHECK(owner == nullptr);
  int ordinal = -1;
  CU_OK(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, base));
  CHECK(ordinal == primary.device);

  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemUnmap(base, unit / 2));
  CU_OK(cu.cuMemUnmap(base, 2 * unit));
  CU_OK(cu.cuMemRelease(first));
  CU_OK(cu.cuMemRelease(second));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemAddressFree(base, unit));
  CU_OK(cu.cuMemAddressFree(base, 4 * unit));
}

TEST_CASE("physical memory lives as long as a handle or a mapping holds it") {
  Primary primary;
  const std::size_t unit = granularity(primary.device), size = 16 * unit;
  const CUmemAllocationProp properties = on_device(primary.device);
  std::size_t before = 0, during = 0, total = 0;
  CU_OK(cu.cuMemGetInfo_v2(&before, &total));
  CUmemGenericAllocationHandle memory = 0, again = 0;
  CU_OK(cu.cuMemCreate(&memory, size, &properties, 0));
  CU_OK(cu.cuMemGetInfo_v2(&during, &total));
  CHECK(before - during == size);
  CUmemAllocationProp told{};
  CU_OK(cu.cuMemGetAllocationPropertiesFromHandle(&told, memory));
  CHECK(told.location.id == primary.device);
  CHECK(told.type == CU_MEM_ALLOCATION_TYPE_PINNED);

  // The same memory seen at two addresses.
  CUdeviceptr one = 0, two = 0;
  CU_OK(cu.cuMemAddressReserve(&one, size, 0, 0, 0));
  CU_OK(cu.cuMemAddressReserve(&two, size, 4 * unit, 0, 0));
  CHECK(two % (4 * unit) == 0);
  CU_OK(cu.cuMemMap(one, size, 0, memory, 0));
  CU_OK(cu.cuMemMap(two, size, 0, memory, 0));
  const CUmemAccessDesc access = access_of(primary.device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CU_OK(cu.cuMemSetAccess(one, size, &access, 1));
  CU_OK(cu.cuMemSetAccess(two, size, &access, 1));
  CU_OK(cu.cuMemRelease(memory));
  CU_OK(cu.cuMemsetD32_v2(one + 1024, 77, 1));
  CHECK(download<std::uint32_t>(two + 1024, 1) == std::vector<std::uint32_t>{77});

  CU_OK(cu.cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(two + 64)));
  CHECK(again == memory);
  CU_OK(cu.cuMemUnmap(one, size));
  CU_OK(cu.cuMemUnmap(two, size));
  CU_OK(cu.cuMemGetInfo_v2(&during, &total));
  CHECK(before - during == size);
  CU_OK(cu.cuMemRelease(again));
  CU_OK(cu.cuMemGetInfo_v2(&during, &total));
  CHECK(before == during);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemRelease(again));
  CU_OK(cu.cuMemAddressFree(one, size));
  CU_OK(cu.cuMemAddressFree(two, size));
}

TEST_CASE("what virtual memory management rejects") {
  Primary primary;
  const std::size_t unit = granularity(primary.device);
  CUmemAllocationProp properties = on_device(primary.device);
  CUmemGenericAllocationHandle memory = 0;
  CUdeviceptr base = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemCreate(&memory, 0, &properties, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemCreate(&memory, unit + 1, &properties, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemCreate(nullptr, unit, &properties, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemAddressReserve(&base, 0, 0, 0, 0));
  std::size_t free = 0, total = 0;
  CU_OK(cu.cuMemGetInfo_v2(&free, &total));
  CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemCreate(&memory, total + unit, &properties, 0));

  CU_OK(cu.cuMemCreate(&memory, unit, &properties, 0));
  CU_OK(cu.cuMemAddressReserve(&base, 2 * unit, 0, 0, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemMap(base, 2 * unit, 0, memory, 0));  // larger than it is
  CU_OK(cu.cuMemMap(base, unit, 0, memory, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemMap(base, unit, 0, memory, 0));  // mapped already
  const CUmemAccessDesc access = access_of(primary.device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemSetAccess(base, 2 * unit, &access, 1));
  // Mapped, but nobody was given access.
  std::uint32_t word = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoH_v2(&word, base, sizeof word));
  CU_OK(cu.cuMemUnmap(base, unit));
  CU_OK(cu.cuMemAddressFree(base, 2 * unit));
  CU_OK(cu.cuMemRelease(memory));
}

TEST_CASE("a pool is open to its own device") {
  Primary primary;
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = primary.device;
  CUmemoryPool pool = nullptr;
  CU_OK(cu.cuMemPoolCreate(&pool, &properties));
  CUmemAccessDesc access = access_of(primary.device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CU_OK(cu.cuMemPoolSetAccess(pool, &access, 1));
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  CU_OK(cu.cuMemPoolGetAccess(&flags, pool, &access.location));
  CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

  CUstream stream = make_stream();
  CUdeviceptr memory = 0;
  CU_OK(cu.cuMemAllocFromPoolAsync(&memory, 1 << 20, pool, stream));
  cuuint64_t used = 0, threshold = 1 << 20;
  CU_OK(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  CHECK(used >= 1 << 20);
  CU_OK(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  threshold = 0;
  CU_OK(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  CHECK(threshold == 1 << 20);
  CU_OK(cu.cuMemFreeAsync(memory, stream));
  CU_OK(cu.cuStreamSynchronize(stream));
  CU_OK(cu.cuMemPoolTrimTo(pool, 0));
  CU_OK(cu.cuMemPoolDestroy(pool));
  CU_OK(cu.cuStreamDestroy_v2(stream));
}

TEST_CASE("attributes of a stream are kept, and copied to another") {
  Primary primary;
  CUstream one = make_stream(), two = make_stream(CU_STREAM_NON_BLOCKING);
  CUstreamAttrValue value{};
  value.syncPolicy = CU_SYNC_POLICY_BLOCKING_SYNC;
  CU_OK(cu.cuStreamSetAttribute(one, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  int least = 0, greatest = 0;
  CU_OK(cu.cuCtxGetStreamPriorityRange(&least, &greatest));
  std::memset(&value, 0, sizeof value);
  value.priority = greatest;
  CU_OK(cu.cuStreamSetAttribute(one, CU_STREAM_ATTRIBUTE_PRIORITY, &value));
  int priority = least;
  CU_OK(cu.cuStreamGetPriority(one, &priority));
  CHECK(priority == greatest);
  CU_OK(cu.cuStreamCopyAttributes(two, one));
  std::memset(&value, 0, sizeof value);
  CU_OK(cu.cuStreamGetAttribute(two, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  CHECK(value.syncPolicy == CU_SYNC_POLICY_BLOCKING_SYNC);
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu.cuStreamSetAttribute(one, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, nullptr));
  unsigned long long first = 0, second = 0;
  CU_OK(cu.cuStreamGetId(one, &first));
  CU_OK(cu.cuStreamGetId(two, &second));
  CHECK(first != second);
  CUdevice device = -1;
  CU_OK(cu.cuStreamGetDevice(one, &device));
  CHECK(device == primary.device);
  CU_OK(cu.cuStreamDestroy_v2(one));
  CU_OK(cu.cuStreamDestroy_v2(two));
}

TEST_SUITE_END();
