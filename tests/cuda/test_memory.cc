#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/cuda/driver.h"

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  CU_OK(cu.cuMemGetInfo_v2(&free, &total));
  CHECK(free <= total);
  return free;
}

}  // namespace

TEST_SUITE("memory") {
  TEST_CASE("what goes up comes down") {
    Primary primary;
    for (std::size_t bytes : {std::size_t{1}, std::size_t{511}, std::size_t{65537}, 3 * kMiB + 7}) {
      CAPTURE(bytes);
      Buffer memory(bytes);
      std::vector<std::uint8_t> sent = pattern(bytes, static_cast<std::uint32_t>(bytes));
      CU_OK(cu.cuMemcpyHtoD_v2(memory, sent.data(), bytes));
      CHECK(download<std::uint8_t>(memory, bytes) == sent);
    }
  }

  TEST_CASE("parts of allocations are copied exactly") {
    Primary primary;
    Buffer memory(4096);
    CU_OK(cu.cuMemsetD8_v2(memory, 0, 4096));
    std::vector<std::uint8_t> sent = pattern(100, 7), expected(4096, 0);
    CU_OK(cu.cuMemcpyHtoD_v2(memory + 333, sent.data(), sent.size()));
    std::copy(sent.begin(), sent.end(), expected.begin() + 333);
    CHECK(download<std::uint8_t>(memory, 4096) == expected);
    CU_OK(cu.cuMemcpyDtoD_v2(memory + 1000, memory + 333, 100));
    std::copy(sent.begin(), sent.end(), expected.begin() + 1000);
    CHECK(download<std::uint8_t>(memory, 4096) == expected);
  }

  TEST_CASE("memset of every width") {
    Primary primary;
    Buffer memory(4096);
    CU_OK(cu.cuMemsetD8_v2(memory, 0xa5, 4096));
    CU_OK(cu.cuMemsetD16_v2(memory + 64, 0xbeef, 5));
    CU_OK(cu.cuMemsetD32_v2(memory + 128, 0xdeadbeef, 3));
    CU_OK(cu.cuMemsetD8_v2(memory + 200, 1, 1));
    std::vector<std::uint8_t> expected(4096, 0xa5);
    for (int i = 0; i < 5; ++i) {
      const std::uint16_t value = 0xbeef;
      std::memcpy(&expected[64 + 2 * i], &value, 2);
    }
    for (int i = 0; i < 3; ++i) {
      const std::uint32_t value = 0xdeadbeef;
      std::memcpy(&expected[128 + 4 * i], &value, 4);
    }
    expected[200] = 1;
    CHECK(download<std::uint8_t>(memory, 4096) == expected);
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD32_v2(memory + 2, 1, 1));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD16_v2(memory + 1, 1, 1));
  }

  TEST_CASE("memset on a stream, of every width") {
    Primary primary;
    Buffer memory(1024);
    CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
    CU_OK(cu.cuMemsetD8Async(memory, 1, 1024, stream));
    CU_OK(cu.cuMemsetD16Async(memory, 0x0302, 256, stream));
    CU_OK(cu.cuMemsetD32Async(memory, 0x07060504, 64, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    std::vector<std::uint8_t> got = download<std::uint8_t>(memory, 1024);
    CHECK(got[0] == 4);
    CHECK(got[255] == 7);
    CHECK(got[256] == 2);
    CHECK(got[511] == 3);
    CHECK(got[512] == 1);
    CHECK(got[1023] == 1);
    CU_OK(cu.cuStreamDestroy_v2(stream));
  }

  TEST_CASE("two-dimensional memset leaves the padding alone") {
    Primary primary;
    CUdeviceptr memory = 0;
    std::size_t pitch = 0;
    CU_OK(cu.cuMemAllocPitch_v2(&memory, &pitch, 100, 10, 4));
    CHECK(pitch >= 100);
    CU_OK(cu.cuMemsetD8_v2(memory, 0x11, pitch * 10));
    CU_OK(cu.cuMemsetD2D8_v2(memory, pitch, 0x22, 100, 10));
    CU_OK(cu.cuMemsetD2D16_v2(memory + pitch, pitch, 0x3333, 8, 2));
    CU_OK(cu.cuMemsetD2D32_v2(memory + 5 * pitch, pitch, 0x44444444, 4, 5));
    std::vector<std::uint8_t> got = download<std::uint8_t>(memory, pitch * 10);
    for (std::size_t y = 0; y < 10; ++y) {
      for (std::size_t x = 0; x < pitch; ++x) {
        std::uint8_t expected = x < 100 ? 0x22 : 0x11;
        if ((y == 1 || y == 2) && x < 16) expected = 0x33;
        if (y >= 5 && x < 16) expected = 0x44;
        REQUIRE(got[y * pitch + x] == expected);
      }
    }
    CU_OK(cu.cuMemFree_v2(memory));
  }

  TEST_CASE("two-dimensional copies") {
    Primary primary;
    Buffer memory(64 * 32);
    std::vector<std::uint8_t> image = pattern(50 * 20, 3), back(80 * 20, 0);
    CU_OK(cu.cuMemsetD8_v2(memory, 0, 64 * 32));
    CUDA_MEMCPY2D up{};
    up.srcMemoryType = CU_MEMORYTYPE_HOST;
    up.srcHost = image.data();
    up.srcPitch = 50;
    up.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    up.dstDevice = memory;
    up.dstPitch = 64;
    up.dstXInBytes = 4;
    up.dstY = 6;
    up.WidthInBytes = 50;
    up.Height = 20;
    CU_OK(cu.cuMemcpy2D_v2(&up));
    CUDA_MEMCPY2D down{};
    down.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    down.srcDevice = memory;
    down.srcPitch = 64;
    down.srcXInBytes = 4;
    down.srcY = 6;
    down.dstMemoryType = CU_MEMORYTYPE_HOST;
    down.dstHost = back.data();
    down.dstPitch = 80;
    down.WidthInBytes = 50;
    down.Height = 20;
    CU_OK(cu.cuMemcpy2DAsync_v2(&down, nullptr));
    CU_OK(cu.cuCtxSynchronize());
    for (std::size_t y = 0; y < 20; ++y) {
      REQUIRE(std::equal(&image[y * 50], &image[y * 50] + 50, &back[y * 80]));
      REQUIRE(std::all_of(&back[y * 80 + 50], &back[y * 80] + 80,
                          [](std::uint8_t byte) { return byte == 0; }));
    }
    up.dstPitch = 40;  // narrower than a row
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpy2D_v2(&up));
  }

  TEST_CASE("three-dimensional copies") {
    Primary primary;
    constexpr std::size_t kWidth = 12, kHeight = 5, kDepth = 3;
    Buffer memory(16 * 8 * 4);
    std::vector<std::uint8_t> box = pattern(kWidth * kHeight * kDepth, 9), back(box.size());
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = box.data();
    copy.srcPitch = kWidth;
    copy.srcHeight = kHeight;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = memory;
    copy.dstPitch = 16;
    copy.dstHeight = 8;
    copy.dstXInBytes = 2;
    copy.dstY = 1;
    copy.dstZ = 1;
    copy.WidthInBytes = kWidth;
    copy.Height = kHeight;
    copy.Depth = kDepth;
    CU_OK(cu.cuMemcpy3D_v2(&copy));
    CUDA_MEMCPY3D down{};
    down.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    down.srcDevice = memory;
    down.srcPitch = 16;
    down.srcHeight = 8;
    down.srcXInBytes = 2;
    down.srcY = 1;
    down.srcZ = 1;
    down.dstMemoryType = CU_MEMORYTYPE_HOST;
    down.dstHost = back.data();
    down.dstPitch = kWidth;
    down.dstHeight = kHeight;
    down.WidthInBytes = kWidth;
    down.Height = kHeight;
    down.Depth = kDepth;
    CU_OK(cu.cuMemcpy3D_v2(&down));
    CHECK(back == box);
    CHECK(download<std::uint8_t>(memory + 16 * 8 + 16 + 2, 1)[0] == box[0]);
  }

  TEST_CASE("a pageable source may be changed as soon as the call returns") {
    Primary primary;
    Buffer memory(kMiB);
    CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
    std::vector<std::uint8_t> source = pattern(kMiB, 5), sent = source;
    CU_OK(cu.cuMemsetD8Async(memory, 0, kMiB, stream));
    CU_OK(cu.cuMemcpyHtoDAsync_v2(memory, source.data(), kMiB, stream));
    std::fill(source.begin(), source.end(), 0xee);
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(download<std::uint8_t>(memory, kMiB) == sent);
    CU_OK(cu.cuStreamDestroy_v2(stream));
  }

  TEST_CASE("pinned memory carries copies in both directions") {
    Primary primary;
    constexpr std::size_t kBytes = 300000;
    Buffer memory(kBytes);
    void *up = nullptr, *down = nullptr;
    CU_OK(cu.cuMemHostAlloc(&up, kBytes, CU_MEMHOSTALLOC_PORTABLE));
    CU_OK(cu.cuMemAllocHost_v2(&down, kBytes));
    std::vector<std::uint8_t> sent = pattern(kBytes, 11);
    std::memcpy(up, sent.data(), kBytes);
    std::memset(down, 0, kBytes);
    CUstream stream = make_stream();
    CU_OK(cu.cuMemcpyHtoDAsync_v2(memory, up, kBytes, stream));
    CU_OK(cu.cuMemcpyDtoHAsync_v2(down, memory, kBytes, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(std::memcmp(down, sent.data(), kBytes) == 0);
    unsigned flags = 0;
    CU_OK(cu.cuMemHostGetFlags(&flags, up));
    CHECK((flags & CU_MEMHOSTALLOC_PORTABLE) != 0);
    CU_OK(cu.cuStreamDestroy_v2(stream));
    CU_OK(cu.cuMemFreeHost(up));
    CU_OK(cu.cuMemFreeHost(down));
  }

  TEST_CASE("host memory is registered once") {
    Primary primary;
    std::vector<std::uint8_t> host = pattern(1 << 16, 2), back(1 << 16);
    Buffer memory(host.size());
    CU_OK(cu.cuMemHostRegister_v2(host.data(), host.size(), 0));
    CU_IS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
          cu.cuMemHostRegister_v2(host.data(), host.size(), 0));
    CU_OK(cu.cuMemcpyHtoDAsync_v2(memory, host.data(), host.size(), nullptr));
    CU_OK(cu.cuMemcpyDtoH_v2(back.data(), memory, host.size()));
    CHECK(back == host);
    CU_OK(cu.cuMemHostUnregister(host.data()));
    CU_IS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cu.cuMemHostUnregister(host.data()));
  }

  TEST_CASE("one address space for host and device") {
    Primary primary;
    Buffer memory(1000), other(1000);
    std::vector<std::uint8_t> sent = pattern(1000, 21), back(1000);
    CU_OK(cu.cuMemcpy(memory, reinterpret_cast<CUdeviceptr>(sent.data()), 1000));
    CU_OK(cu.cuMemcpyAsync(other, memory, 1000, nullptr));
    CU_OK(cu.cuMemcpy(reinterpret_cast<CUdeviceptr>(back.data()), other, 1000));
    CHECK(back == sent);
  }

  TEST_CASE("bad copies are refused at the call") {
    Primary primary;
    Buffer memory(1024);
    std::vector<std::uint8_t> host(8 * kMiB);
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoD_v2(memory, host.data(), host.size()));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyDtoH_v2(host.data(), 4096, 16));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8_v2(4096, 0, 16));
    CU_IS(CUDA_SUCCESS, cu.cuMemcpyHtoD_v2(memory, host.data(), 0));
    CUdeviceptr none = 0;
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemAlloc_v2(&none, 0));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemAlloc_v2(nullptr, 16));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(memory + 16));
    CU_IS(CUDA_SUCCESS, cu.cuMemFree_v2(0));
  }

  TEST_CASE("running out of memory is exact and changes nothing") {
    Primary primary;
    std::size_t before = free_bytes();
    CUdeviceptr large = 0, more = 0;
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc_v2(&more, before + 1));
    CHECK(free_bytes() == before);
    std::size_t half = before / 2;
    CU_OK(cu.cuMemAlloc_v2(&large, half));
    std::size_t left = free_bytes();
    CHECK(left <= before - half);
    CHECK(before - half - left <= 4 * kMiB);
    CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc_v2(&more, left + 1));
    CU_OK(cu.cuMemFree_v2(large));
    CHECK(free_bytes() == before);
    // What was refused must not have broken anything.
    CU_OK(cu.cuMemAlloc_v2(&large, half));
    CU_OK(cu.cuMemsetD8_v2(large + half - 1, 42, 1));
    CHECK(download<std::uint8_t>(large + half - 1, 1)[0] == 42);
    CU_OK(cu.cuMemFree_v2(large));
  }

  TEST_CASE("allocations do not overlap and are aligned") {
    Primary primary;
    std::vector<std::pair<CUdeviceptr, std::size_t>> all;
    for (int i = 1; i <= 64; ++i) {
      std::size_t bytes = static_cast<std::size_t>(i) * 1237;
      CUdeviceptr memory = 0;
      CU_OK(cu.cuMemAlloc_v2(&memory, bytes));
      CHECK(memory % 256 == 0);
      all.emplace_back(memory, bytes);
    }
    std::sort(all.begin(), all.end());
    for (std::size_t i = 1; i < all.size(); ++i) {
      CHECK(all[i - 1].first + all[i - 1].second <= all[i].first);
    }
    for (const auto& [memory, bytes] : all) CU_OK(cu.cuMemFree_v2(memory));
  }

  TEST_CASE("stream-ordered allocation") {
    Primary primary;
    CUmemoryPool pool = nullptr;
    CU_OK(cu.cuDeviceGetDefaultMemPool(&pool, primary.device));
    CHECK(pool != nullptr);
    CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr memory = 0;
    std::vector<std::uint8_t> back(4096);
    CU_OK(cu.cuMemAllocAsync(&memory, 4096, stream));
    CU_OK(cu.cuMemsetD8Async(memory, 77, 4096, stream));
    CU_OK(cu.cuMemcpyDtoHAsync_v2(back.data(), memory, 4096, stream));
    CU_OK(cu.cuMemFreeAsync(memory, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(back == std::vector<std::uint8_t>(4096, 77));
    CU_OK(cu.cuStreamDestroy_v2(stream));
  }

  TEST_CASE("addresses say what they are") {
    Primary primary;
    Buffer memory(5000), other(100);
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    CU_OK(cu.cuMemGetAddressRange_v2(&base, &bytes, memory + 1234));
    CHECK(base == memory);
    CHECK(bytes == 5000);
    CUmemorytype type{};
    CUcontext context = nullptr;
    int ordinal = -1;
    unsigned long long id = 0, other_id = 0;
    CU_OK(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 10));
    CHECK(type == CU_MEMORYTYPE_DEVICE);
    CU_OK(cu.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
    CHECK(context == primary.context);
    CU_OK(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory));
    CHECK(ordinal == primary.device);
    CU_OK(cu.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory + 1));
    CU_OK(cu.cuPointerGetAttribute(&other_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, other));
    CHECK(id != other_id);
    void* pinned = nullptr;
    CU_OK(cu.cuMemHostAlloc(&pinned, 4096, 0));
    CU_OK(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   reinterpret_cast<CUdeviceptr>(pinned) + 17));
    CHECK(type == CU_MEMORYTYPE_HOST);
    CU_OK(cu.cuMemFreeHost(pinned));
    int local = 0;
    CUdeviceptr unknown = reinterpret_cast<CUdeviceptr>(&local);
    CU_IS(CUDA_ERROR_INVALID_VALUE,
          cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, unknown));
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    CUdeviceptr pointer = 1;
    void* values[] = {&type, &pointer};
    CU_OK(cu.cuPointerGetAttributes(2, which, values, memory));
    CHECK(type == CU_MEMORYTYPE_DEVICE);
    CHECK(pointer == memory);
    CU_OK(cu.cuPointerGetAttributes(2, which, values, unknown));
    CHECK(static_cast<int>(type) == 0);
    CHECK(pointer == 0);
  }

  TEST_CASE("a copy between two devices on the null stream is in order with both") {
    int devices = 0;
    CU_OK(cu.cuDeviceGetCount(&devices));
    if (devices < 2) return;
    Primary primary;
    Kernels kernels;
    const CUfunction slow = kernels["slow_step"];
    Buffer source(4);
    CUcontext other = nullptr;
    CU_OK(cu.cuDevicePrimaryCtxRetain(&other, 1));
    CU_OK(cu.cuCtxSetCurrent(other));
    CUdeviceptr target = 0;
    CU_OK(cu.cuMemAlloc_v2(&target, 4));
    std::uint32_t multiplier = 1, addend = 1, turns = 20000;
    CUdeviceptr address = source;
    for (std::uint32_t round = 0; round < 4; ++round) {
      // The kernel before the copy is the source's, and so is the change after it.
      CU_OK(cu.cuCtxSetCurrent(primary.context));
      CU_OK(cu.cuMemsetD32Async(source, round, 1, nullptr));
      CU_OK(launch(slow, 1, 1, nullptr, {&address, &multiplier, &addend, &turns}));
      CU_OK(cu.cuCtxSetCurrent(other));
      CU_OK(cu.cuMemcpyAsync(target, source, 4, nullptr));
      CU_OK(cu.cuCtxSetCurrent(primary.context));
      CU_OK(cu.cuMemsetD32Async(source, 77, 1, nullptr));
      CU_OK(cu.cuCtxSetCurrent(other));
      CHECK(download<std::uint32_t>(target, 1).at(0) == round + 1);
    }
    CU_OK(cu.cuMemFree_v2(target));
    CU_OK(cu.cuDevicePrimaryCtxRelease_v2(1));
    CU_OK(cu.cuCtxSetCurrent(primary.context));
  }
}
