#include <doctest/doctest.h>

#include <cstring>
#include <set>
#include <thread>

#include "tests/cuda/driver.h"

TEST_SUITE("context") {
  TEST_CASE("devices describe themselves consistently") {
    int count = 0, version = 0;
    CU_OK(cu.cuDeviceGetCount(&count));
    CU_OK(cu.cuDriverGetVersion(&version));
    REQUIRE(count >= 1);
    CHECK(version >= 12000);
    std::set<std::string> uuids;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      CUdevice device = -1;
      CU_OK(cu.cuDeviceGet(&device, ordinal));
      char name[128] = "", address[32] = "";
      CU_OK(cu.cuDeviceGetName(name, sizeof name, device));
      CHECK(std::strlen(name) > 0);
      CUuuid uuid{};
      CU_OK(cu.cuDeviceGetUuid_v2(&uuid, device));
      uuids.insert(std::string(uuid.bytes, 16));
      std::size_t total = 0;
      CU_OK(cu.cuDeviceTotalMem_v2(&total, device));
      CHECK(total >= std::size_t{256} << 20);
      int major = 0, minor = 0, value = 0;
      CU_OK(cu.cuDeviceComputeCapability(&major, &minor, device));
      CU_OK(cu.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
      CHECK(value == major);
      CU_OK(cu.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
      CHECK(value == minor);
      CU_OK(cu.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
      CHECK(value == 32);
      CU_OK(cu.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device));
      CHECK(value == 1024);
      CU_OK(cu.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, device));
      CHECK(value == 1);
      CUdevice same = -1;
      CU_OK(cu.cuDeviceGetPCIBusId(address, sizeof address, device));
      CU_OK(cu.cuDeviceGetByPCIBusId(&same, address));
      CHECK(same == device);
    }
    CHECK(uuids.size() == static_cast<std::size_t>(count));
    CUdevice none = 0;
    CU_IS(CUDA_ERROR_INVALID_DEVICE, cu.cuDeviceGet(&none, count));
    CU_IS(CUDA_ERROR_INVALID_DEVICE, cu.cuDeviceGet(&none, -1));
    int value = 0;
    CU_IS(CUDA_ERROR_INVALID_VALUE,
          cu.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(99999), 0));
  }

  TEST_CASE("a thread without a context is told so") {
    std::thread([] {
      CUcontext context = reinterpret_cast<CUcontext>(1);
      CUdevice device = 0;
      CUdeviceptr memory = 0;
      CU_IS(CUDA_SUCCESS, cu.cuCtxGetCurrent(&context));
      CHECK(context == nullptr);
      CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxGetDevice(&device));
      CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuMemAlloc_v2(&memory, 256));
      CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxSynchronize());
      CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxPopCurrent_v2(&context));
    }).join();
  }

  TEST_CASE("the primary context is counted") {
    CUcontext first = nullptr, second = nullptr;
    unsigned flags = 0;
    int active = -1;
    CU_OK(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
    REQUIRE(active == 0);
    CU_OK(cu.cuDevicePrimaryCtxRetain(&first, 0));
    CU_OK(cu.cuDevicePrimaryCtxRetain(&second, 0));
    CHECK(first == second);
    CU_OK(cu.cuDevicePrimaryCtxRelease_v2(0));
    CU_OK(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(active == 1);
    CU_OK(cu.cuDevicePrimaryCtxRelease_v2(0));
    CU_OK(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(active == 0);
    CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuDevicePrimaryCtxRelease_v2(0));
  }

  TEST_CASE("each thread has its own stack of contexts") {
    Primary primary;
    CUcontext own = nullptr, current = nullptr, popped = nullptr;
    CU_OK(cu.cuCtxCreate_v2(&own, 0, primary.device));
    CU_OK(cu.cuCtxGetCurrent(&current));
    CHECK(current == own);  // a created context is pushed
    CU_OK(cu.cuCtxPushCurrent_v2(primary.context));
    CU_OK(cu.cuCtxGetCurrent(&current));
    CHECK(current == primary.context);
    std::thread([&] {
      CUcontext inner = own;
      CU_IS(CUDA_SUCCESS, cu.cuCtxGetCurrent(&inner));
      CHECK(inner == nullptr);
      CU_IS(CUDA_SUCCESS, cu.cuCtxSetCurrent(own));
      CUdevice device = -1;
      CU_IS(CUDA_SUCCESS, cu.cuCtxGetDevice(&device));
      CHECK(device == primary.device);
    }).join();
    CU_OK(cu.cuCtxPopCurrent_v2(&popped));
    CHECK(popped == primary.context);
    CU_OK(cu.cuCtxDestroy_v2(own));
    CU_OK(cu.cuCtxGetCurrent(&current));
    CHECK(current == primary.context);  // destroying the current one popped it
  }

  TEST_CASE("settings are remembered") {
    Primary primary;
    std::size_t stack = 0, changed = 0;
    CU_OK(cu.cuCtxGetLimit(&stack, CU_LIMIT_STACK_SIZE));
    CHECK(stack > 0);
    CU_OK(cu.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    CU_OK(cu.cuCtxGetLimit(&changed, CU_LIMIT_STACK_SIZE));
    CHECK(changed >= 4096);
    CU_OK(cu.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, stack));
    int least = -1, greatest = 1;
    CU_OK(cu.cuCtxGetStreamPriorityRange(&least, &greatest));
    CHECK(least == 0);
    CHECK(greatest <= least);
    unsigned version = 0;
    CU_OK(cu.cuCtxGetApiVersion(primary.context, &version));
    CHECK(version >= 3010);
  }

  TEST_CASE("a reset gives back what the context held") {
    CUcontext context = nullptr;
    CUdeviceptr memory = 0;
    std::size_t before = 0, after = 0, total = 0;
    CU_OK(cu.cuDevicePrimaryCtxRetain(&context, 0));
    CU_OK(cu.cuCtxSetCurrent(context));
    CU_OK(cu.cuMemGetInfo_v2(&before, &total));
    CU_OK(cu.cuMemAlloc_v2(&memory, std::size_t{64} << 20));
    CU_OK(cu.cuDevicePrimaryCtxReset_v2(0));
    CU_OK(cu.cuDevicePrimaryCtxRetain(&context, 0));
    CU_OK(cu.cuCtxSetCurrent(context));
    CU_OK(cu.cuMemGetInfo_v2(&after, &total));
    CHECK(after == before);
    CU_OK(cu.cuCtxSetCurrent(nullptr));
    CU_OK(cu.cuDevicePrimaryCtxRelease_v2(0));
  }

  TEST_CASE("entry points are found by name, version and flags") {
    void* found = nullptr;
    CUdriverProcAddressQueryResult status{};
    CU_OK(cu.cuGetProcAddress_v2("cuMemAlloc", &found, 12000, 0, &status));
    CHECK(status == CU_GET_PROC_ADDRESS_SUCCESS);
    CHECK(found == reinterpret_cast<void*>(cu.cuMemAlloc_v2));
    void* per_thread = nullptr;
    CU_OK(cu.cuGetProcAddress_v2("cuMemcpyHtoDAsync", &found, 12000, 0, &status));
    CU_OK(cu.cuGetProcAddress_v2("cuMemcpyHtoDAsync", &per_thread, 12000,
                                 CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
    CHECK(found != per_thread);
    CU_IS(CUDA_ERROR_NOT_FOUND,
          cu.cuGetProcAddress_v2("cuMemAllocQuickly", &found, 12000, 0, &status));
    CHECK(found == nullptr);
    CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    CU_IS(CUDA_ERROR_NOT_FOUND,
          cu.cuGetProcAddress_v2("cuLibraryLoadData", &found, 11000, 0, &status));
    CHECK(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  }

  TEST_CASE("results have names and texts") {
    const char *name = nullptr, *text = nullptr;
    CU_OK(cu.cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
    CHECK(std::string(name) == "CUDA_ERROR_OUT_OF_MEMORY");
    CU_OK(cu.cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    CHECK(std::strlen(text) > 0);
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuGetErrorName(static_cast<CUresult>(12345), &name));
  }

  TEST_CASE("a process without cuInit is told so") { CHECK(run_child("not_initialized") == 0); }
  TEST_CASE("a child of an initialised process has no CUDA") {
    CHECK(run_child("fork_after_init") == 0);
  }
  TEST_CASE("a child forked before cuInit is a process of its own") {
    CHECK(run_child("fork_before_init") == 0);
  }
}
