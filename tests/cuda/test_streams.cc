#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <type_traits>

#include "tests/cuda/driver.h"

namespace {

constexpr unsigned kTurns = 20000;  // some milliseconds on a CPU

// What the kernel `step` does, on the CPU.
std::uint32_t step(std::uint32_t value, std::uint32_t multiplier, std::uint32_t addend) {
  return value * multiplier + addend;
}

CUresult launch_step(CUfunction function, CUdeviceptr memory, std::uint32_t multiplier,
                     std::uint32_t addend, CUstream stream) {
  return launch(function, 1, 1, stream, {&memory, &multiplier, &addend});
}

CUresult launch_slow(CUfunction function, CUdeviceptr memory, std::uint32_t multiplier,
                     std::uint32_t addend, CUstream stream, std::uint32_t turns = kTurns) {
  return launch(function, 1, 1, stream, {&memory, &multiplier, &addend, &turns});
}

std::uint32_t value_at(CUdeviceptr memory) { return download<std::uint32_t>(memory, 1).at(0); }

}  // namespace

TEST_SUITE("streams") {
  TEST_CASE("a stream keeps the order of its work") {
    Primary primary;
    Kernels kernels;
    CUfunction function = kernels["step"];
    Buffer memory(4);
    CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
    CU_OK(cu.cuMemsetD32Async(memory, 1, 1, stream));
    std::uint32_t expected = 1;
    for (std::uint32_t i = 0; i < 200; ++i) {
      CU_OK(launch_step(function, memory, 2 * i + 3, i, stream));
      expected = step(expected, 2 * i + 3, i);
      if (i == 100) {
        CU_OK(cu.cuMemsetD32Async(memory, 5, 1, stream));
        expected = 5;
      }
    }
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(value_at(memory) == expected);
    CU_IS(CUDA_SUCCESS, cu.cuStreamQuery(stream));
    CU_OK(cu.cuStreamDestroy_v2(stream));
  }

  TEST_CASE("events order streams") {
    Primary primary;
    Kernels kernels;
    CUfunction slow = kernels["slow_step"], quick = kernels["step"];
    Buffer memory(4);
    CUstream first = make_stream(CU_STREAM_NON_BLOCKING);
    CUstream second = make_stream(CU_STREAM_NON_BLOCKING);
    CUevent done = nullptr, back = nullptr;
    CU_OK(cu.cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
    CU_OK(cu.cuEventCreate(&back, CU_EVENT_DISABLE_TIMING));
    CU_OK(cu.cuMemsetD32_v2(memory, 3, 1));
    CU_OK(cu.cuCtxSynchronize());
    std::uint32_t expected = 3;
    for (std::uint32_t i = 0; i < 10; ++i) {
      CU_OK(launch_slow(slow, memory, 5, i, first, 500));
      CU_OK(cu.cuEventRecord(done, first));
      CU_OK(cu.cuStreamWaitEvent(second, done, 0));
      CU_OK(launch_step(quick, memory, 7, i, second));
      CU_OK(cu.cuEventRecord(back, second));
      CU_OK(cu.cuStreamWaitEvent(first, back, 0));
      expected = step(step(expected, 5, i), 7, i);
    }
    CU_OK(cu.cuEventSynchronize(back));
    CHECK(value_at(memory) == expected);
    CU_OK(cu.cuEventDestroy_v2(done));
    CU_OK(cu.cuEventDestroy_v2(back));
    CU_OK(cu.cuStreamDestroy_v2(first));
    CU_OK(cu.cuStreamDestroy_v2(second));
  }

  TEST_CASE("the legacy stream waits for blocking streams and they for it") {
    Primary primary;
    Kernels kernels;
    CUfunction slow = kernels["slow_step"];
    Buffer memory(4);
    CUstream first = make_stream(), second = make_stream();
    CU_OK(cu.cuMemsetD32_v2(memory, 1, 1));
    CU_OK(launch_slow(slow, memory, 3, 1, first));
    CU_OK(launch_slow(slow, memory, 5, 2, nullptr));
    CU_OK(launch_slow(slow, memory, 7, 3, second));
    CU_OK(launch_slow(slow, memory, 11, 4, CU_STREAM_LEGACY));
    // The copy is on the legacy stream as well, so no explicit wait is needed.
    CHECK(value_at(memory) == step(step(step(step(1, 3, 1), 5, 2), 7, 3), 11, 4));
    CU_OK(cu.cuStreamDestroy_v2(first));
    CU_OK(cu.cuStreamDestroy_v2(second));
  }

  TEST_CASE("a copy that was waited for is done, also for streams that wait for nothing") {
    Primary primary;
    Kernels kernels;
    Buffer busy(4), from(4), to(4);
    CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
    void* pages = nullptr;
    CU_OK(cu.cuMemHostAlloc(&pages, 4, 0));
    for (std::uint32_t i = 1; i < 4; ++i) {
      *static_cast<std::uint32_t*>(pages) = i;
      CU_OK(launch_slow(kernels["slow_step"], busy, 3, 1, nullptr));
      CU_OK(cu.cuMemcpyHtoD_v2(from, pages, 4));
      CU_OK(cu.cuMemcpyDtoDAsync_v2(to, from, 4, stream));
      CU_OK(cu.cuStreamSynchronize(stream));
      CHECK(value_at(to) == i);
    }
    CU_OK(cu.cuMemFreeHost(pages));
    CU_OK(cu.cuStreamDestroy_v2(stream));
  }

  TEST_CASE("work goes on while the caller does") {
    Primary primary;
    Kernels kernels;
    CUfunction slow = kernels["slow_step"];
    Buffer memory(4);
    CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = nullptr;
    CU_OK(cu.cuEventCreate(&event, 0));
    CU_OK(cu.cuMemsetD32Async(memory, 1, 1, stream));
    for (int i = 0; i < 10; ++i) CU_OK(launch_slow(slow, memory, 3, 1, stream));
    CU_OK(cu.cuEventRecord(event, stream));
    // Either answer is right; both must become "ready" after a wait.
    CUresult stream_state = cu.cuStreamQuery(stream), event_state = cu.cuEventQuery(event);
    CHECK((stream_state == CUDA_SUCCESS || stream_state == CUDA_ERROR_NOT_READY));
    CHECK((event_state == CUDA_SUCCESS || event_state == CUDA_ERROR_NOT_READY));
    CU_OK(cu.cuEventSynchronize(event));
    CU_IS(CUDA_SUCCESS, cu.cuEventQuery(event));
    CU_IS(CUDA_SUCCESS, cu.cuStreamQuery(stream));
    CU_OK(cu.cuEventDestroy_v2(event));
    CU_OK(cu.cuStreamDestroy_v2(stream));
  }

  TEST_CASE("events measure time") {
    Primary primary;
    Kernels kernels;
    CUfunction slow = kernels["slow_step"];
    Buffer memory(4);
    CUevent begin = nullptr, end = nullptr, untimed = nullptr, fresh = nullptr;
    CU_OK(cu.cuEventCreate(&begin, 0));
    CU_OK(cu.cuEventCreate(&end, CU_EVENT_BLOCKING_SYNC));
    CU_OK(cu.cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    CU_OK(cu.cuEventCreate(&fresh, 0));
    CU_OK(cu.cuMemsetD32_v2(memory, 1, 1));
    CU_OK(cu.cuEventRecord(begin, nullptr));
    CU_OK(launch_slow(slow, memory, 3, 1, nullptr));
    CU_OK(cu.cuEventRecord(end, nullptr));
    CU_OK(cu.cuEventRecord(untimed, nullptr));
    CU_OK(cu.cuCtxSynchronize());
    float milliseconds = -1;
    CU_OK(cu.cuEventElapsedTime(&milliseconds, begin, end));
    CHECK(milliseconds > 0);
    CHECK(milliseconds < 60000);
    CU_OK(cu.cuEventElapsedTime(&milliseconds, begin, begin));
    CHECK(milliseconds == 0);
    CU_IS(CUDA_ERROR_INVALID_HANDLE, cu.cuEventElapsedTime(&milliseconds, begin, untimed));
    CU_IS(CUDA_ERROR_INVALID_HANDLE, cu.cuEventElapsedTime(&milliseconds, begin, fresh));
    CU_IS(CUDA_SUCCESS, cu.cuEventQuery(fresh));
    CU_IS(CUDA_SUCCESS, cu.cuEventSynchronize(fresh));
    for (CUevent event : {begin, end, untimed, fresh}) CU_OK(cu.cuEventDestroy_v2(event));
    CUevent wrong = nullptr;
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuEventCreate(&wrong, 0x80));
  }

  TEST_CASE("streams know their settings") {
    Primary primary;
    int least = 0, greatest = 0, priority = 1;
    CU_OK(cu.cuCtxGetStreamPriorityRange(&least, &greatest));
    CUstream stream = nullptr;
    CU_OK(cu.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest - 100));
    CU_OK(cu.cuStreamGetPriority(stream, &priority));
    CHECK(priority == greatest);  // clamped
    unsigned flags = 0;
    CU_OK(cu.cuStreamGetFlags(stream, &flags));
    CHECK(flags == CU_STREAM_NON_BLOCKING);
    CUcontext context = nullptr;
    CU_OK(cu.cuStreamGetCtx(stream, &context));
    CHECK(context == primary.context);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    CU_OK(cu.cuStreamIsCapturing(stream, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
    CU_OK(cu.cuStreamDestroy_v2(stream));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuStreamCreate(&stream, 0x10));
  }

  TEST_CASE("host functions take their turn") {
    Primary primary;
    Kernels kernels;
    CUfunction slow = kernels["slow_step"];
    Buffer memory(4);
    void* pinned = nullptr;
    CU_OK(cu.cuMemHostAlloc(&pinned, 4, 0));
    CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
    struct Seen {
      std::atomic<std::uint32_t>* source;
      std::uint32_t value = 0;
    };
    std::atomic<std::uint32_t>* word = new (pinned) std::atomic<std::uint32_t>(0);
    Seen first{word}, second{word};
    CUhostFn note = [](void* user) {
      Seen* seen = static_cast<Seen*>(user);
      seen->value = seen->source->load();
    };
    CU_OK(cu.cuMemsetD32Async(memory, 2, 1, stream));
    CU_OK(launch_slow(slow, memory, 3, 1, stream));
    CU_OK(cu.cuMemcpyDtoHAsync_v2(pinned, memory, 4, stream));
    CU_OK(cu.cuLaunchHostFunc(stream, note, &first));
    CU_OK(launch_slow(slow, memory, 3, 1, stream));
    CU_OK(cu.cuMemcpyDtoHAsync_v2(pinned, memory, 4, stream));
    CU_OK(cu.cuLaunchHostFunc(stream, note, &second));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(first.value == 7);
    CHECK(second.value == 22);
    CU_OK(cu.cuStreamDestroy_v2(stream));
    CU_OK(cu.cuMemFreeHost(pinned));
  }

  TEST_CASE("stream callbacks get the stream and its state") {
    Primary primary;
    CUstream stream = make_stream();
    struct Seen {
      CUstream stream = nullptr;
      CUresult result = CUDA_ERROR_UNKNOWN;
    } seen;
    CU_OK(cu.cuStreamAddCallback(
        stream,
        [](CUstream from, CUresult result, void* user) {
          *static_cast<Seen*>(user) = Seen{from, result};
        },
        &seen, 0));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(seen.stream == stream);
    CHECK(seen.result == CUDA_SUCCESS);
    CU_OK(cu.cuStreamDestroy_v2(stream));
  }

  TEST_CASE("per-thread entry points use the thread's own stream") {
    Primary primary;
    Kernels kernels;
    CUfunction slow = kernels["slow_step"];
    decltype(&::cuLaunchKernel) launch_kernel = nullptr;
    decltype(&::cuStreamSynchronize) synchronize = nullptr;
    decltype(&::cuStreamQuery) query = nullptr;
    auto find = [](const char* name, auto* function) {
      void* found = nullptr;
      CUdriverProcAddressQueryResult status{};
      CU_OK(cu.cuGetProcAddress_v2(name, &found, 12000,
                                   CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
      *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(found);
    };
    find("cuLaunchKernel", &launch_kernel);
    find("cuStreamSynchronize", &synchronize);
    find("cuStreamQuery", &query);
    Buffer memory(4);
    CU_OK(cu.cuMemsetD32_v2(memory, 1, 1));
    CUdeviceptr address = memory;
    std::uint32_t multiplier = 4, addend = 1, turns = 1000;
    void* params[] = {&address, &multiplier, &addend, &turns};
    for (int i = 0; i < 3; ++i) {
      CU_OK(launch_kernel(slow, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
    }
    CU_OK(cu.cuStreamSynchronize(CU_STREAM_PER_THREAD));
    CU_IS(CUDA_SUCCESS, query(nullptr));
    CHECK(value_at(memory) == 85);
    CU_OK(launch_slow(slow, memory, 2, 0, CU_STREAM_PER_THREAD));
    CU_OK(synchronize(nullptr));
    CHECK(value_at(memory) == 170);
  }

  TEST_CASE("32 threads launch and synchronise at once") {
    Primary primary;
    Kernels kernels;
    CUfunction function = kernels["step"];
    constexpr unsigned kThreads = 32;
    std::atomic<unsigned> good{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        CUstream stream = nullptr;
        CUdeviceptr memory = 0;
        std::uint32_t expected = t, seen = 0;
        bool fine = cu.cuCtxSetCurrent(primary.context) == CUDA_SUCCESS &&
                    cu.cuMemAlloc_v2(&memory, 4) == CUDA_SUCCESS &&
                    cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
                    cu.cuMemsetD32Async(memory, t, 1, stream) == CUDA_SUCCESS;
        for (std::uint32_t i = 0; fine && i < 40; ++i) {
          fine = launch_step(function, memory, 2 * t + 3, i, stream) == CUDA_SUCCESS;
          expected = step(expected, 2 * t + 3, i);
          if (i % 4 != t % 4) continue;
          fine = fine && cu.cuMemcpyDtoHAsync_v2(&seen, memory, 4, stream) == CUDA_SUCCESS &&
                 cu.cuStreamSynchronize(stream) == CUDA_SUCCESS && seen == expected;
        }
        fine = fine && cu.cuStreamDestroy_v2(stream) == CUDA_SUCCESS &&
               cu.cuMemFree_v2(memory) == CUDA_SUCCESS;
        if (fine) ++good;
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(good == kThreads);
  }

  TEST_CASE("a destroyed stream still finishes its work") {
    Primary primary;
    Kernels kernels;
    CUfunction slow = kernels["slow_step"];
    Buffer memory(4);
    CU_OK(cu.cuMemsetD32_v2(memory, 1, 1));
    CU_OK(cu.cuCtxSynchronize());
    CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 3; ++i) CU_OK(launch_slow(slow, memory, 2, 1, stream));
    CU_OK(cu.cuStreamDestroy_v2(stream));
    CU_OK(cu.cuCtxSynchronize());
    CHECK(value_at(memory) == 15);
  }
}
