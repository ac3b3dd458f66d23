#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "tests/cuda/driver.h"

TEST_SUITE("launches") {
  TEST_CASE("vectors are added") {
    Primary primary;
    Kernels kernels;
    constexpr int kCount = 10000;
    std::vector<float> a(kCount), b(kCount);
    for (int i = 0; i < kCount; ++i) {
      a[i] = static_cast<float>(i) * 0.25f;
      b[i] = static_cast<float>(kCount - i) * 1.5f;
    }
    Buffer da(kCount * 4), db(kCount * 4), dc(kCount * 4);
    CU_OK(cu.cuMemcpyHtoD_v2(da, a.data(), kCount * 4));
    CU_OK(cu.cuMemcpyHtoD_v2(db, b.data(), kCount * 4));
    CUdeviceptr pa = da, pb = db, pc = dc;
    int n = kCount;
    CU_OK(launch(kernels["add"], (kCount + 255) / 256, 256, nullptr, {&pa, &pb, &pc, &n}));
    std::vector<float> c = download<float>(dc, kCount);
    for (int i = 0; i < kCount; ++i) REQUIRE(c[i] == a[i] + b[i]);
  }

  TEST_CASE("parameters of every size arrive, in every form") {
    Primary primary;
    Kernels kernels;
    CUfunction mixed = kernels["mixed"];
    Buffer memory(64);
    struct alignas(16) Block {
      std::uint8_t m0 = 0x9a;
      alignas(8) CUdeviceptr out;
      std::uint16_t m2 = 0xbcde;
      std::uint8_t m3[3] = {1, 2, 3};
      alignas(8) double m4 = -2.5;
      std::uint32_t m5 = 0xfedcba98;
      alignas(16) std::uint64_t m6[4] = {0x1111111111111111, 2, 3, 0x4444444444444444};
    } block;
    static_assert(offsetof(Block, m3) == 18);
    static_assert(offsetof(Block, m4) == 24);
    static_assert(offsetof(Block, m6) == 48);
    block.out = memory;
    auto verify = [&] {
      std::vector<std::uint64_t> got = download<std::uint64_t>(memory, 7);
      REQUIRE(got.size() == 7);
      double number = 0;
      std::memcpy(&number, &got[3], 8);
      CHECK(got[0] == 0x9a);
      CHECK(got[1] == 0xbcde);
      CHECK(got[2] == 0x030201);
      CHECK(number == -2.5);
      CHECK(got[4] == 0xfedcba98);
      CHECK(got[5] == 0x1111111111111111);
      CHECK(got[6] == 0x4444444444444444);
    };
    std::vector<void*> params = {&block.m0, &block.out, &block.m2, &block.m3,
                                 &block.m4, &block.m5,  &block.m6};
    SUBCASE("pointers to values") {
      CU_OK(cu.cuLaunchKernel(mixed, 1, 1, 1, 1, 1, 1, 0, nullptr, params.data(), nullptr));
    }
    SUBCASE("a ready block") {
      std::size_t bytes = sizeof block;
      void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                       CU_LAUNCH_PARAM_END};
      CU_OK(cu.cuLaunchKernel(mixed, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
    }
    SUBCASE("with launch attributes") {
      CUlaunchAttribute attributes[2] = {};
      attributes[0].id = CU_LAUNCH_ATTRIBUTE_IGNORE;
      attributes[1].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
      attributes[1].value.priority = 0;
      CUlaunchConfig config{1, 1, 1, 1, 1, 1, 0, nullptr, attributes, 2};
      CU_OK(cu.cuLaunchKernelEx(&config, mixed, params.data(), nullptr));
    }
    verify();
  }

  TEST_CASE("dynamic shared memory and barriers") {
    Primary primary;
    Kernels kernels;
    CUfunction reverse = kernels["reverse"];
    for (unsigned threads : {1u, 32u, 100u, 1024u}) {
      CAPTURE(threads);
      std::vector<std::uint32_t> data(threads);
      for (unsigned i = 0; i < threads; ++i) data[i] = i * 3 + 1;
      Buffer memory(threads * 4);
      CU_OK(cu.cuMemcpyHtoD_v2(memory, data.data(), threads * 4));
      CUdeviceptr address = memory;
      CU_OK(launch(reverse, 1, threads, nullptr, {&address}, threads * 4));
      std::vector<std::uint32_t> got = download<std::uint32_t>(memory, threads);
      std::reverse(data.begin(), data.end());
      CHECK(got == data);
    }
  }

  TEST_CASE("static shared memory") {
    Primary primary;
    Kernels kernels;
    Buffer memory(4);
    CUdeviceptr address = memory;
    CU_OK(launch(kernels["shares"], 4, 32, nullptr, {&address}));
    CHECK(download<std::uint32_t>(memory, 1)[0] == 5);
  }

  TEST_CASE("shared memory beyond 48 KiB has to be asked for") {
    Primary primary;
    Kernels kernels;
    int most = 0;
    CU_OK(cu.cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                                  primary.device));
    if (most <= 48 << 10) return;  // a device without the option
    CUfunction reverse = kernels["reverse"];
    std::vector<std::uint32_t> data(64, 8);
    Buffer memory(256);
    CU_OK(cu.cuMemcpyHtoD_v2(memory, data.data(), 256));
    CUdeviceptr address = memory;
    CU_IS(CUDA_ERROR_INVALID_VALUE,
          launch(reverse, 1, 64, nullptr, {&address}, static_cast<unsigned>(most)));
    CU_OK(cu.cuFuncSetAttribute(reverse, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most));
    CU_OK(launch(reverse, 1, 64, nullptr, {&address}, static_cast<unsigned>(most)));
    CHECK(download<std::uint32_t>(memory, 64) == data);
  }

  TEST_CASE("impossible launches are refused at the call") {
    Primary primary;
    Kernels kernels;
    CUfunction nothing = kernels["nothing"], add = kernels["add"];
    struct Row {
      const char* what;
      unsigned grid[3], block[3], shared;
      CUresult expected;
    };
    const Row rows[] = {
        {"good", {1, 1, 1}, {1024, 1, 1}, 0, CUDA_SUCCESS},
        {"4096 threads", {1, 1, 1}, {4096, 1, 1}, 0, CUDA_ERROR_INVALID_VALUE},
        {"32 x 32 x 2 threads", {1, 1, 1}, {32, 32, 2}, 0, CUDA_ERROR_INVALID_VALUE},
        {"65 deep", {1, 1, 1}, {1, 1, 65}, 0, CUDA_ERROR_INVALID_VALUE},
        {"no block x", {0, 1, 1}, {1, 1, 1}, 0, CUDA_ERROR_INVALID_VALUE},
        {"no block y", {1, 0, 1}, {1, 1, 1}, 0, CUDA_ERROR_INVALID_VALUE},
        {"no block z", {1, 1, 0}, {1, 1, 1}, 0, CUDA_ERROR_INVALID_VALUE},
        {"no thread", {1, 1, 1}, {0, 1, 1}, 0, CUDA_ERROR_INVALID_VALUE},
        {"65536 blocks in y", {1, 65536, 1}, {1, 1, 1}, 0, CUDA_ERROR_INVALID_VALUE},
        {"65536 blocks in z", {1, 1, 65536}, {1, 1, 1}, 0, CUDA_ERROR_INVALID_VALUE},
        {"too much shared memory", {1, 1, 1}, {1, 1, 1}, 49153, CUDA_ERROR_INVALID_VALUE},
        {"all the shared memory", {1, 1, 1}, {1, 1, 1}, 49152, CUDA_SUCCESS},
    };
    for (const Row& row : rows) {
      CAPTURE(row.what);
      CU_IS(row.expected,
            cu.cuLaunchKernel(nothing, row.grid[0], row.grid[1], row.grid[2], row.block[0],
                              row.block[1], row.block[2], row.shared, nullptr, nullptr, nullptr));
    }
    CU_IS(CUDA_ERROR_INVALID_HANDLE, launch(nullptr, 1, 1, nullptr, {}));
    CU_IS(CUDA_ERROR_INVALID_VALUE,
          cu.cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    CHECK(launch(kernels["bounded"], 1, 65, nullptr, {}) != CUDA_SUCCESS);
    CU_IS(CUDA_SUCCESS, launch(kernels["bounded"], 1, 64, nullptr, {}));
    // None of it spoiled the context.
    CU_IS(CUDA_SUCCESS, cu.cuCtxSynchronize());
  }

  TEST_CASE("occupancy follows from what a kernel uses") {
    Primary primary;
    Kernels kernels;
    CUfunction nothing = kernels["nothing"], shares = kernels["shares"];
    int per_sm = 0, blocks = 0;
    CU_OK(cu.cuDeviceGetAttribute(&per_sm, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                                  primary.device));
    CU_OK(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nothing, 1024, 0));
    CHECK(blocks == per_sm / 1024);
    CU_OK(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, shares, 32, 0));
    CHECK(blocks >= 1);
    CHECK(blocks <= 5);  // 40,000 bytes each
    CU_IS(CUDA_ERROR_INVALID_VALUE,
          cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nothing, 0, 0));
    int grid = 0, block = 0;
    CU_OK(cu.cuOccupancyMaxPotentialBlockSize(&grid, &block, nothing, nullptr, 0, 0));
    CHECK(block >= 32);
    CHECK(block <= 1024);
    CHECK(grid >= 1);
    CU_OK(cu.cuOccupancyMaxPotentialBlockSize(&grid, &block, nothing, nullptr, 0, 128));
    CHECK(block <= 128);
    std::size_t bytes = 0;
    CU_OK(cu.cuOccupancyAvailableDynamicSMemPerBlock(&bytes, nothing, 1, 256));
    CHECK(bytes >= std::size_t{48} << 10);
  }

  TEST_CASE("cooperative launches have to fit on the device at once") {
    Primary primary;
    Kernels kernels;
    CUfunction add = kernels["add"];
    int supported = 0, blocks = 0, processors = 0;
    CU_OK(cu.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH,
                                  primary.device));
    REQUIRE(supported == 1);
    CU_OK(cu.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                  primary.device));
    CU_OK(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 256, 0));
    constexpr int kCount = 1024;
    Buffer a(kCount * 4), b(kCount * 4), c(kCount * 4);
    CU_OK(cu.cuMemsetD32_v2(a, 0x3f800000, kCount));  // 1.0f
    CU_OK(cu.cuMemsetD32_v2(b, 0x40000000, kCount));  // 2.0f
    CUdeviceptr pa = a, pb = b, pc = c;
    int n = kCount;
    void* params[] = {&pa, &pb, &pc, &n};
    CU_OK(cu.cuLaunchCooperativeKernel(add, kCount / 256, 1, 1, 256, 1, 1, 0, nullptr, params));
    CHECK(download<float>(c, kCount) == std::vector<float>(kCount, 3.0f));
    // A size of which nobody asked yet how many blocks fit: the answer must not touch the
    // parameters.
    CU_OK(cu.cuMemsetD32_v2(c, 0, kCount));
    CU_OK(cu.cuLaunchCooperativeKernel(add, kCount / 64, 1, 1, 64, 1, 1, 0, nullptr, params));
    CHECK(download<float>(c, kCount) == std::vector<float>(kCount, 3.0f));
    CU_IS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
          cu.cuLaunchCooperativeKernel(add, static_cast<unsigned>(blocks * processors) + 1, 1, 1,
                                       256, 1, 1, 0, nullptr, params));
    CU_IS(CUDA_SUCCESS, cu.cuCtxSynchronize());
  }

  TEST_CASE("eight threads launch at once") {
    Primary primary;
    Kernels kernels;
    CUfunction step = kernels["step"];
    std::vector<std::thread> threads;
    std::vector<std::uint32_t> results(8), expected(8);
    for (std::uint32_t t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        CU_IS(CUDA_SUCCESS, cu.cuCtxSetCurrent(primary.context));
        CUdeviceptr memory = 0;
        CUstream stream = nullptr;
        CU_IS(CUDA_SUCCESS, cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CU_IS(CUDA_SUCCESS, cu.cuMemAlloc_v2(&memory, 4));
        CU_IS(CUDA_SUCCESS, cu.cuMemsetD32Async(memory, t, 1, stream));
        std::uint32_t value = t;
        for (std::uint32_t i = 0; i < 50; ++i) {
          std::uint32_t multiplier = 3 + 2 * t, addend = i;
          CU_IS(CUDA_SUCCESS, launch(step, 1, 1, stream, {&memory, &multiplier, &addend}));
          value = value * multiplier + addend;
        }
        CU_IS(CUDA_SUCCESS, cu.cuStreamSynchronize(stream));
        CU_IS(CUDA_SUCCESS, cu.cuMemcpyDtoH_v2(&results[t], memory, 4));
        expected[t] = value;
        CU_IS(CUDA_SUCCESS, cu.cuMemFree_v2(memory));
        CU_IS(CUDA_SUCCESS, cu.cuStreamDestroy_v2(stream));
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(results == expected);
  }

  TEST_CASE("two streams with events share the work") {
    Primary primary;
    Kernels kernels;
    CUfunction add = kernels["add"];
    constexpr int kCount = 4096;
    std::vector<float> ones(kCount, 1.0f);
    Buffer a(kCount * 4), b(kCount * 4), c(kCount * 4);
    CUstream copy = make_stream(CU_STREAM_NON_BLOCKING);
    CUstream compute = make_stream(CU_STREAM_NON_BLOCKING);
    CUevent uploaded = nullptr;
    CU_OK(cu.cuEventCreate(&uploaded, CU_EVENT_DISABLE_TIMING));
    CUdeviceptr pa = a, pb = b, pc = c;
    int n = kCount;
    CU_OK(cu.cuMemcpyHtoDAsync_v2(a, ones.data(), kCount * 4, copy));
    CU_OK(cu.cuMemcpyDtoDAsync_v2(b, a, kCount * 4, copy));
    CU_OK(cu.cuEventRecord(uploaded, copy));
    CU_OK(cu.cuStreamWaitEvent(compute, uploaded, 0));
    for (int i = 0; i < 5; ++i) {
      CU_OK(launch(add, kCount / 256, 256, compute, {&pa, &pb, &pc, &n}));
      CU_OK(launch(add, kCount / 256, 256, compute, {&pb, &pc, &pa, &n}));
    }
    CU_OK(cu.cuStreamSynchronize(compute));
    // a' = 2b + a with b = 1, five times
    CHECK(download<float>(a, kCount) == std::vector<float>(kCount, 11.0f));
    CU_OK(cu.cuEventDestroy_v2(uploaded));
    CU_OK(cu.cuStreamDestroy_v2(copy));
    CU_OK(cu.cuStreamDestroy_v2(compute));
  }
}

TEST_SUITE("faults") {
  TEST_CASE("an illegal address spoils the context for good") {
    CHECK(run_child("illegal_address") == 0);
  }
  TEST_CASE("another context works after one was spoiled and destroyed") {
    CHECK(run_child("illegal_address_then_new_context") == 0);
  }
  TEST_CASE("other processes do not notice") {
    CHECK(run_child("illegal_address") == 0);
    Primary primary;
    Buffer memory(16);
    CU_OK(cu.cuMemsetD8_v2(memory, 1, 16));
    CHECK(download<std::uint8_t>(memory, 16) == std::vector<std::uint8_t>(16, 1));
  }
}

// NVIDIA's driver follows a handle wherever it points, so this suite is left out there.
TEST_SUITE("bad handles") {
  TEST_CASE("handles that were never given are refused") {
    Primary primary;
    Kernels kernels;
    void* wrong = reinterpret_cast<void*>(0x7000000010);
    CU_IS(CUDA_ERROR_INVALID_HANDLE, launch(static_cast<CUfunction>(wrong), 1, 1, nullptr, {}));
    CU_IS(CUDA_ERROR_INVALID_HANDLE,
          launch(kernels["nothing"], 1, 1, static_cast<CUstream>(wrong), {}));
    CU_IS(CUDA_ERROR_INVALID_HANDLE, cu.cuStreamSynchronize(static_cast<CUstream>(wrong)));
    CU_IS(CUDA_ERROR_INVALID_HANDLE, cu.cuEventQuery(static_cast<CUevent>(wrong)));
    CU_IS(CUDA_ERROR_INVALID_HANDLE, cu.cuModuleUnload(static_cast<CUmodule>(wrong)));
    CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxSetCurrent(static_cast<CUcontext>(wrong)));
    CU_IS(CUDA_ERROR_INVALID_HANDLE, cu.cuLibraryUnload(static_cast<CUlibrary>(wrong)));
  }

  TEST_CASE("destroyed handles are refused") {
    Primary primary;
    CUstream stream = make_stream();
    CUevent event = nullptr;
    CUcontext context = nullptr;
    CU_OK(cu.cuEventCreate(&event, 0));
    CU_OK(cu.cuStreamDestroy_v2(stream));
    CU_OK(cu.cuEventDestroy_v2(event));
    CU_IS(CUDA_ERROR_INVALID_HANDLE, cu.cuStreamSynchronize(stream));
    CU_IS(CUDA_ERROR_INVALID_HANDLE, cu.cuStreamDestroy_v2(stream));
    CU_IS(CUDA_ERROR_INVALID_HANDLE, cu.cuEventRecord(event, nullptr));
    CU_OK(cu.cuCtxCreate_v2(&context, 0, primary.device));
    CU_OK(cu.cuCtxDestroy_v2(context));
    CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu.cuCtxPushCurrent_v2(context));
  }
}
