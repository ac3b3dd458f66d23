// Page-locked host memory that kernels use by its address: what the program and its kernels write
// is seen by the other at launches, copies and waits.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/cuda/driver.h"

namespace {

// Page-locked memory for the length of a test.
class Pinned {
 public:
  explicit Pinned(std::size_t bytes, unsigned flags = 0) {
    CU_OK(cu.cuMemHostAlloc(&memory_, bytes, flags));
    std::memset(memory_, 0, bytes);
  }
  ~Pinned() { CU_IS(CUDA_SUCCESS, cu.cuMemFreeHost(memory_)); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  volatile std::uint8_t* bytes() const { return static_cast<volatile std::uint8_t*>(memory_); }
  volatile std::uint32_t& word(std::size_t i = 0) const {
    return static_cast<volatile std::uint32_t*>(memory_)[i];
  }
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(memory_); }
  void* pointer() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

struct Structure {
  std::uint32_t before = 1;
  CUdeviceptr to = 0;
  std::uint32_t after = 2;
};
static_assert(sizeof(Structure) == 24);

// *at = *at * multiplier + addend
CUresult step(CUfunction function, CUdeviceptr at, std::uint32_t multiplier, std::uint32_t addend,
              CUstream stream = nullptr) {
  return launch(function, 1, 1, stream, {&at, &multiplier, &addend});
}

}  // namespace

TEST_SUITE("host memory") {
  TEST_CASE("a kernel stores through plain page-locked memory, however it gets the address") {
    Primary primary;
    Kernels kernels;
    CUfunction by_argument = kernels["put"], by_structure = kernels["put_by_structure"],
               by_pointer = kernels["put_by_pointer"];
    Buffer place(8);
    for (int i = 0; i < 200; ++i) {
      CAPTURE(i);
      Pinned one(64), two(4096), three(100000);
      CUdeviceptr to = one.address() + 3;
      std::uint32_t value = 0xab;
      CU_OK(launch(by_argument, 1, 1, nullptr, {&to, &value}));
      Structure structure;
      structure.to = two.address() + 4095;
      CU_OK(launch(by_structure, 1, 1, nullptr, {&structure, &value}));
      CUdeviceptr stored = three.address() + 77777, where = place;
      CU_OK(cu.cuMemcpyHtoD_v2(place, &stored, sizeof stored));
      CU_OK(launch(by_pointer, 1, 1, nullptr, {&where, &value}));
      CU_OK(cu.cuCtxSynchronize());
      REQUIRE(one.bytes()[3] == 0xab);
      REQUIRE(two.bytes()[4095] == 0xab);
      REQUIRE(three.bytes()[77777] == 0xab);
      REQUIRE(one.bytes()[2] == 0);
      REQUIRE(three.bytes()[77778] == 0);
    }
  }

  TEST_CASE("memory with every flag goes back and forth") {
    Primary primary;
    Kernels kernels;
    for (unsigned flags :
         {0, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_WRITECOMBINED,
          CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP}) {
      CAPTURE(flags);
      Pinned memory(4096, flags);
      CUdeviceptr address = 0;
      CU_OK(cu.cuMemHostGetDevicePointer_v2(&address, memory.pointer(), 0));
      CHECK(address == memory.address());
      std::uint32_t expected = 1;
      memory.word(9) = expected;
      for (std::uint32_t i = 0; i < 20; ++i) {
        CU_OK(step(kernels["step"], address + 36, 3, i));
        CU_OK(cu.cuStreamSynchronize(nullptr));
        expected = expected * 3 + i;
        REQUIRE(memory.word(9) == expected);
        memory.word(9) = ++expected;
      }
    }
  }

  TEST_CASE("several blocks of one launch") {
    Primary primary;
    Kernels kernels;
    constexpr int kCount = 10000;
    Pinned a(kCount * 4), b(kCount * 4), c(kCount * 4);
    float* left = static_cast<float*>(a.pointer());
    float* right = static_cast<float*>(b.pointer());
    const float* sum = static_cast<float*>(c.pointer());
    CUdeviceptr pa = a.address(), pb = b.address(), pc = c.address();
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < kCount; ++i) {
        left[i] = static_cast<float>(i * (round + 1));
        right[i] = static_cast<float>(i) * 0.5f;
      }
      int n = kCount;
      CU_OK(launch(kernels["add"], (kCount + 255) / 256, 256, nullptr, {&pa, &pb, &pc, &n}));
      CU_OK(cu.cuCtxSynchronize());
      for (int i = 0; i < kCount; ++i) REQUIRE(sum[i] == left[i] + right[i]);
    }
  }

  TEST_CASE("a large block changes all over") {
    Primary primary;
    Kernels kernels;
    constexpr std::uint32_t kBytes = 20 << 20;
    Pinned memory(kBytes);
    CUdeviceptr to = memory.address();
    std::uint32_t n = kBytes, stride = 1, value = 5;
    CU_OK(launch(kernels["put_strided"], kBytes / 256, 256, nullptr, {&to, &n, &stride, &value}));
    CU_OK(cu.cuCtxSynchronize());
    std::uint32_t wrong = 0;
    for (std::uint32_t i = 0; i < kBytes; ++i) {
      wrong += memory.bytes()[i] != static_cast<std::uint8_t>(5 + i);
    }
    CHECK(wrong == 0);
  }

  TEST_CASE("program and kernel write to different bytes of one line") {
    Primary primary;
    Kernels kernels;
    Pinned memory(256);
    for (int round = 0; round < 50; ++round) {
      CAPTURE(round);
      CUdeviceptr to = memory.address() + 1;
      std::uint32_t n = 128, stride = 2, value = static_cast<std::uint32_t>(round);
      CU_OK(launch(kernels["put_strided"], 1, 128, nullptr, {&to, &n, &stride, &value}));
      for (int i = 0; i < 256; i += 2) {
        memory.bytes()[i] = static_cast<std::uint8_t>(i + round);
      }
      CU_OK(cu.cuStreamSynchronize(nullptr));
      for (int i = 0; i < 256; ++i) {
        REQUIRE(memory.bytes()[i] == static_cast<std::uint8_t>((i % 2 == 1 ? i / 2 : i) + round));
      }
    }
  }

  TEST_CASE("freed memory is allocated again") {
    Primary primary;
    Kernels kernels;
    for (std::uint32_t i = 0; i < 100; ++i) {
      CAPTURE(i);
      Pinned memory(4096 * (1 + i % 3));
      REQUIRE(memory.word(1) == 0);
      memory.word() = i;
      CU_OK(step(kernels["step"], memory.address(), 2, 7));
      if (i % 2 == 0) CU_OK(cu.cuCtxSynchronize());  // freeing waits, too
      if (i % 2 == 0) REQUIRE(memory.word() == i * 2 + 7);
    }
  }

  TEST_CASE("a program waits by query and by event") {
    Primary primary;
    Kernels kernels;
    Pinned memory(4096);
    CUevent event = nullptr;
    CU_OK(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
    std::uint32_t expected = 0;
    for (std::uint32_t i = 0; i < 20; ++i) {
      CU_OK(step(kernels["step"], memory.address() + 400, 5, i, stream));
      CU_OK(cu.cuEventRecord(event, stream));
      CUresult state = CUDA_ERROR_NOT_READY;
      if (i % 3 == 0) state = cu.cuEventSynchronize(event);
      while (state == CUDA_ERROR_NOT_READY) {
        state = i % 3 == 1 ? cu.cuEventQuery(event) : cu.cuStreamQuery(stream);
      }
      CU_OK(state);
      expected = expected * 5 + i;
      REQUIRE(memory.word(100) == expected);
    }
    CU_OK(cu.cuStreamDestroy_v2(stream));
    CU_OK(cu.cuEventDestroy_v2(event));
  }

  TEST_CASE("a kernel waits for a flag that the program sets") {
    Primary primary;
    Kernels kernels;
    Pinned flags(64, CU_MEMHOSTALLOC_DEVICEMAP);
    CUdeviceptr flag = 0, answer = 0;
    CU_OK(cu.cuMemHostGetDevicePointer_v2(&flag, flags.pointer(), 0));
    answer = flag + 4;
    for (std::uint32_t i = 1; i <= 5; ++i) {
      flags.word() = 0;
      CU_OK(launch(kernels["answer"], 1, 1, nullptr, {&flag, &answer}));
      flags.word() = i;
      CU_OK(cu.cuCtxSynchronize());
      REQUIRE(flags.word(1) == i);
    }
  }

  TEST_CASE("copies and fills take their turn in the stream") {
    Primary primary;
    Kernels kernels;
    constexpr std::size_t kBytes = 70000;
    Pinned source(kBytes), target(kBytes);
    Buffer memory(kBytes);
    CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
    for (std::uint32_t round = 0; round < 5; ++round) {
      CAPTURE(round);
      // Kernel to host memory, from there to the device, from there to other host memory that a
      // kernel then changes: nothing is waited for in between.
      CUdeviceptr from = source.address();
      std::uint32_t n = kBytes, stride = 1, value = round;
      CU_OK(launch(kernels["put_strided"], (kBytes + 255) / 256, 256, stream,
                   {&from, &n, &stride, &value}));
      CU_OK(cu.cuMemcpyHtoDAsync_v2(memory, source.pointer(), kBytes, stream));
      CU_OK(step(kernels["step"], target.address(), 0, 11, stream));
      CU_OK(cu.cuMemcpyDtoHAsync_v2(target.pointer(), memory, kBytes, stream));
      CU_OK(step(kernels["step"], target.address() + 4, 0, 4, stream));
      CU_OK(cu.cuMemsetD8Async(target.address() + 100, 0xee, 3, stream));
      CU_OK(cu.cuStreamSynchronize(stream));
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < kBytes; ++i) {
        std::uint8_t expected = static_cast<std::uint8_t>(round + i);
        if (i >= 4 && i < 8) expected = i == 4 ? 4 : 0;
        if (i >= 100 && i < 103) expected = 0xee;
        wrong += target.bytes()[i] != expected;
      }
      REQUIRE(wrong == 0);
    }
    // Those that wait: the program may write and read at once.
    CU_OK(cu.cuMemsetD32_v2(memory, 1, kBytes / 4));
    source.word() = 77;
    CU_OK(cu.cuMemcpyHtoD_v2(memory, source.pointer(), 4));
    source.word() = 78;
    CU_OK(cu.cuMemcpyDtoH_v2(target.pointer(), memory, 8));
    CHECK(target.word() == 77);
    CHECK(target.word(1) == 1);
    CU_OK(cu.cuMemcpy(target.address(), source.address(), 4));
    CHECK(target.word() == 78);
    CU_OK(cu.cuStreamDestroy_v2(stream));
  }

  TEST_CASE("what a function of a stream writes is what later work of the stream reads") {
    Primary primary;
    Kernels kernels;
    CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
    struct Writes {
      volatile std::uint32_t* to;
      std::uint32_t value;
      static void run(void* data) {
        // Later than a copy that did not wait would be.
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        *static_cast<Writes*>(data)->to = static_cast<Writes*>(data)->value;
      }
    };
    Buffer memory(16);
    for (std::uint32_t i = 1; i <= 3; ++i) {
      CAPTURE(i);
      // No kernel has seen the first: only copies of it are made.
      Pinned copied(64), used(64);
      Writes first{&copied.word(3), i}, second{&used.word(), 10 * i};
      CU_OK(cu.cuLaunchHostFunc(stream, &Writes::run, &first));
      CU_OK(cu.cuMemcpyHtoDAsync_v2(memory, static_cast<char*>(copied.pointer()) + 12, 4, stream));
      CU_OK(cu.cuLaunchHostFunc(stream, &Writes::run, &second));
      CU_OK(step(kernels["step"], used.address(), 2, 1, stream));
      CUDA_MEMCPY2D rows{};
      rows.srcMemoryType = CU_MEMORYTYPE_HOST;
      rows.srcHost = copied.pointer();
      rows.srcXInBytes = 12;
      rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
      rows.dstDevice = memory;
      rows.dstXInBytes = 4;
      rows.srcPitch = rows.dstPitch = 16;
      rows.WidthInBytes = 4;
      rows.Height = 1;
      CU_OK(cu.cuStreamSynchronize(stream));
      CHECK(used.word() == 20 * i + 1);
      CHECK(download<std::uint32_t>(memory, 1)[0] == i);
      first.value = i + 100;
      CU_OK(cu.cuLaunchHostFunc(stream, &Writes::run, &first));
      CU_OK(cu.cuMemcpy2DAsync_v2(&rows, stream));
      CU_OK(cu.cuStreamSynchronize(stream));
      CHECK(download<std::uint32_t>(memory, 2)[1] == i + 100);
    }
    CU_OK(cu.cuStreamDestroy_v2(stream));
  }

  TEST_CASE("memory in host memory is found by its address there") {
    Primary primary;
    Kernels kernels;
    Pinned list(4096), value(64);
    *static_cast<CUdeviceptr*>(list.pointer()) = value.address() + 5;
    CUdeviceptr where = list.address();
    std::uint32_t byte = 0x5a;
    CU_OK(launch(kernels["put_by_pointer"], 1, 1, nullptr, {&where, &byte}));
    CU_OK(cu.cuCtxSynchronize());
    CHECK(value.bytes()[5] == 0x5a);
  }

  TEST_CASE("a graph reads what the memory holds when it is launched") {
    Primary primary;
    Kernels kernels;
    Pinned memory(4096);
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
    CU_OK(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CU_OK(step(kernels["step"], memory.address(), 10, 1, stream));
    CU_OK(cu.cuStreamEndCapture(stream, &graph));
    CU_OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (std::uint32_t i = 0; i < 5; ++i) {
      memory.word() = i;
      CU_OK(cu.cuGraphLaunch(exec, stream));
      CU_OK(cu.cuStreamSynchronize(stream));
      REQUIRE(memory.word() == i * 10 + 1);
    }
    CU_OK(cu.cuGraphExecDestroy(exec));
    CU_OK(cu.cuGraphDestroy(graph));
    CU_OK(cu.cuStreamDestroy_v2(stream));
  }

  TEST_CASE("contexts share it, and take theirs with them") {
    Primary primary;
    Kernels kernels;
    Pinned memory(4096, CU_MEMHOSTALLOC_PORTABLE);
    memory.word() = 1;
    CU_OK(step(kernels["step"], memory.address(), 2, 1));
    CU_OK(cu.cuCtxSynchronize());
    CUcontext other = nullptr;
    CU_OK(cu.cuCtxCreate_v2(&other, 0, 0));
    {
      Kernels there;
      CU_OK(step(there["step"], memory.address(), 2, 1));
      CU_OK(cu.cuCtxSynchronize());
      CHECK(memory.word() == 7);
      void* own = nullptr;
      CU_OK(cu.cuMemAllocHost_v2(&own, 4096));
      CU_OK(step(there["step"], reinterpret_cast<CUdeviceptr>(own), 0, 3));
      CU_OK(cu.cuCtxSynchronize());
      CHECK(*static_cast<volatile std::uint32_t*>(own) == 3);
    }
    CU_OK(cu.cuCtxDestroy_v2(other));
    CU_OK(cu.cuCtxSetCurrent(primary.context));
    CU_OK(step(kernels["step"], memory.address(), 2, 1));
    CU_OK(cu.cuCtxSynchronize());
    CHECK(memory.word() == 15);
  }

  TEST_CASE("registered memory is used where it lies") {
    Primary primary;
    Kernels kernels;
    // A place that is free in most processes.
    void* pages = mmap(reinterpret_cast<void*>(0x2b0000000000), 3 * 4096, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages != MAP_FAILED);
    std::uint8_t* bytes = static_cast<std::uint8_t*>(pages);
    std::uint8_t* first = bytes + 100;  // to 5100, and from there on
    std::uint8_t* second = bytes + 5100;
    bytes[99] = 0x99;
    for (int round = 0; round < 3; ++round) {
      CU_OK(cu.cuMemHostRegister_v2(first, 5000, CU_MEMHOSTREGISTER_DEVICEMAP));
      CU_OK(cu.cuMemHostRegister_v2(second, 2000, CU_MEMHOSTREGISTER_PORTABLE));
      CUdeviceptr address = 0;
      CU_OK(cu.cuMemHostGetDevicePointer_v2(&address, first + 10, 0));
      CHECK(address == reinterpret_cast<CUdeviceptr>(first + 10));
      address = reinterpret_cast<CUdeviceptr>(first);
      std::uint32_t n = 5000, stride = 1, value = static_cast<std::uint32_t>(round);
      CU_OK(launch(kernels["put_strided"], 20, 256, nullptr, {&address, &n, &stride, &value}));
      CU_OK(step(kernels["step"], reinterpret_cast<CUdeviceptr>(second), 0, 8));
      CU_OK(cu.cuCtxSynchronize());
      CU_OK(cu.cuMemHostUnregister(first));
      CU_OK(cu.cuMemHostUnregister(second));
      for (int i = 0; i < 5000; ++i) REQUIRE(first[i] == static_cast<std::uint8_t>(i + round));
      CHECK(second[0] == 8);
      CHECK(bytes[99] == 0x99);
    }
    munmap(pages, 3 * 4096);
  }

  TEST_CASE("threads use blocks of their own and one together") {
    Primary primary;
    Kernels kernels;
    Pinned together(8 * 64);
    CUfunction function = kernels["step"];
    std::vector<int> wrong(8, 0);
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        cu.cuCtxSetCurrent(primary.context);
        CUstream stream = nullptr;
        void* own = nullptr;
        if (cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
            cu.cuMemAllocHost_v2(&own, 4096) != CUDA_SUCCESS) {
          wrong[t] = -1;
          return;
        }
        volatile std::uint32_t& mine = *static_cast<std::uint32_t*>(own);
        // Neighbours' words lie in the same line.
        volatile std::uint32_t& shared = together.word(t);
        for (std::uint32_t i = 0; i < 30; ++i) {
          mine = i;
          shared = i + t;
          const bool ok =
              step(function, reinterpret_cast<CUdeviceptr>(own), 2, t, stream) == CUDA_SUCCESS &&
              step(function, together.address() + 4 * t, 3, 1, stream) == CUDA_SUCCESS &&
              cu.cuStreamSynchronize(stream) == CUDA_SUCCESS;
          wrong[t] += !ok || mine != i * 2 + t || shared != (i + t) * 3 + 1;
        }
        cu.cuMemFreeHost(own);
        cu.cuStreamDestroy_v2(stream);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int count : wrong) CHECK(count == 0);
  }

  TEST_CASE("a forked child has its own") { CHECK(run_child("fork_with_page_locked") == 0); }

  TEST_CASE("what is no page-locked memory has no device pointer") {
    Primary primary;
    int local = 0;
    CUdeviceptr address = 0;
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemHostGetDevicePointer_v2(&address, &local, 0));
    Pinned memory(64);
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemHostGetDevicePointer_v2(nullptr, memory.pointer(), 0));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemHostGetDevicePointer_v2(&address, memory.pointer(), 1));
    int can = 0;
    CU_OK(cu.cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, primary.device));
    CHECK(can == 1);
  }
}
