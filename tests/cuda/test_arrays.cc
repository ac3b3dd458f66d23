// CUDA arrays and their copies; batches of copies; pools by their place.
#include <doctest/doctest.h>

#include <vector>

#include "tests/cuda/driver.h"

namespace {

CUDA_ARRAY3D_DESCRIPTOR shape(std::size_t width, std::size_t height, std::size_t depth,
                              CUarray_format format = CU_AD_FORMAT_UNSIGNED_INT8,
                              unsigned channels = 1, unsigned flags = 0) {
  CUDA_ARRAY3D_DESCRIPTOR out{};
  out.Width = width;
  out.Height = height;
  out.Depth = depth;
  out.Format = format;
  out.NumChannels = channels;
  out.Flags = flags;
  return out;
}

CUarray make_array(const CUDA_ARRAY3D_DESCRIPTOR& wanted) {
  CUarray out = nullptr;
  CU_OK(cu.cuArray3DCreate_v2(&out, &wanted));
  return out;
}

// A whole box between host memory, packed, and an array.
CUDA_MEMCPY3D box_of(std::size_t row, std::size_t height, std::size_t depth) {
  CUDA_MEMCPY3D out{};
  out.WidthInBytes = row;
  out.Height = height;
  out.Depth = depth;
  return out;
}

CUDA_MEMCPY3D upload_to(CUarray array, const void* from, std::size_t row, std::size_t height,
                        std::size_t depth) {
  CUDA_MEMCPY3D out = box_of(row, height, depth);
  out.srcMemoryType = CU_MEMORYTYPE_HOST;
  out.srcHost = from;
  out.srcPitch = row;
  out.srcHeight = height;
  out.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  out.dstArray = array;
  return out;
}

CUDA_MEMCPY3D download_from(CUarray array, void* to, std::size_t row, std::size_t height,
                            std::size_t depth) {
  CUDA_MEMCPY3D out = box_of(row, height, depth);
  out.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  out.srcArray = array;
  out.dstMemoryType = CU_MEMORYTYPE_HOST;
  out.dstHost = to;
  out.dstPitch = row;
  out.dstHeight = height;
  return out;
}

}  // namespace

TEST_SUITE_BEGIN("arrays");

TEST_CASE("an array is described, charged and given back") {
  Primary primary;
  CUarray array = nullptr;
  CUDA_ARRAY_DESCRIPTOR flat{300, 200, CU_AD_FORMAT_FLOAT, 2};
  CU_OK(cu.cuArrayCreate_v2(&array, &flat));
  CUDA_ARRAY_DESCRIPTOR told{};
  CU_OK(cu.cuArrayGetDescriptor_v2(&told, array));
  CHECK(told.Width == 300);
  CHECK(told.Height == 200);
  CHECK(told.Format == CU_AD_FORMAT_FLOAT);
  CHECK(told.NumChannels == 2);
  CUDA_ARRAY3D_DESCRIPTOR full{};
  CU_OK(cu.cuArray3DGetDescriptor_v2(&full, array));
  CHECK(full.Depth == 0);
  CHECK(full.Flags == 0);
  CUDA_ARRAY_MEMORY_REQUIREMENTS needs{};
  CU_OK(cu.cuArrayGetMemoryRequirements(&needs, array, primary.device));
  CHECK(needs.size >= 300 * 200 * 8);
  CHECK(needs.alignment != 0);
  CUarray plane = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuArrayGetPlane(&plane, array, 0));
  CU_OK(cu.cuArrayDestroy(array));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu.cuArrayDestroy(array));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu.cuArrayGetDescriptor_v2(&told, array));

  // More than the device has, often: nothing is lost on the way.
  std::size_t before = 0, after = 0, total = 0;
  CU_OK(cu.cuCtxSynchronize());
  CU_OK(cu.cuMemGetInfo_v2(&before, &total));
  const CUDA_ARRAY3D_DESCRIPTOR big = shape(4096, 4096, 16);
  for (std::size_t taken = 0; taken < 2 * total; taken += std::size_t{256} << 20) {
    CUarray one = make_array(big);
    CU_OK(cu.cuArrayDestroy(one));
  }
  std::vector<CUarray> all;
  CUresult result = CUDA_SUCCESS;
  while (all.size() < 1000 && result == CUDA_SUCCESS) {
    CUarray one = nullptr;
    result = cu.cuArray3DCreate_v2(&one, &big);
    if (result == CUDA_SUCCESS) all.push_back(one);
  }
  CU_IS(CUDA_ERROR_OUT_OF_MEMORY, result);
  for (CUarray one : all) CU_OK(cu.cuArrayDestroy(one));
  CU_OK(cu.cuCtxSynchronize());
  CU_OK(cu.cuMemGetInfo_v2(&after, &total));
  CHECK(after == before);
}

TEST_CASE("boxes travel between arrays, memory and the host") {
  Primary primary;
  constexpr std::size_t kWidth = 33, kHeight = 7, kDepth = 5, kElement = 4,
                        kRow = kWidth * kElement;
  const std::vector<std::uint8_t> sent = pattern(kRow * kHeight * kDepth, 3);
  std::vector<std::uint8_t> back(sent.size());
  const CUDA_ARRAY3D_DESCRIPTOR wanted =
      shape(kWidth, kHeight, kDepth, CU_AD_FORMAT_UNSIGNED_INT16, 2);
  CUarray first = make_array(wanted), second = make_array(wanted);
  CUDA_MEMCPY3D up = upload_to(first, sent.data(), kRow, kHeight, kDepth);
  CU_OK(cu.cuMemcpy3D_v2(&up));
  CUDA_MEMCPY3D across = box_of(kRow, kHeight, kDepth);
  across.srcMemoryType = across.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  across.srcArray = first;
  across.dstArray = second;
  CUstream stream = make_stream();
  CU_OK(cu.cuMemcpy3DAsync_v2(&across, stream));
  CU_OK(cu.cuStreamSynchronize(stream));
  CUDA_MEMCPY3D down = download_from(second, back.data(), kRow, kHeight, kDepth);
  CU_OK(cu.cuMemcpy3D_v2(&down));
  CHECK(back == sent);

  // A part, from the middle, into pitched device memory.
  Buffer memory(64 << 10);
  CU_OK(cu.cuMemsetD8_v2(memory, 0, 64 << 10));
  CUDA_MEMCPY3D part = box_of(5 * kElement, 3, 2);
  part.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  part.srcArray = second;
  part.srcXInBytes = 9 * kElement;
  part.srcY = 4;
  part.srcZ = 3;
  part.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  part.dstDevice = memory;
  part.dstPitch = 64;
  part.dstHeight = 10;
  CU_OK(cu.cuMemcpy3DAsync_v2(&part, stream));
  CU_OK(cu.cuStreamSynchronize(stream));
  for (std::size_t z = 0; z < 2; ++z) {
    for (std::size_t y = 0; y < 3; ++y) {
      const std::uint8_t* row = &sent[((z + 3) * kHeight + y + 4) * kRow + 9 * kElement];
      CHECK(download<std::uint8_t>(memory + (z * 10 + y) * 64, 5 * kElement) ==
            std::vector<std::uint8_t>(row, row + 5 * kElement));
    }
  }
  CHECK(download<std::uint8_t>(memory + 5 * kElement, 1)[0] == 0);

  // The same by the two-dimensional form, which reaches the first slice, and between devices' form.
  std::vector<std::uint8_t> flat(kRow * kHeight);
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  rows.srcArray = second;
  rows.dstMemoryType = CU_MEMORYTYPE_HOST;
  rows.dstHost = flat.data();
  rows.dstPitch = kRow;
  rows.WidthInBytes = kRow;
  rows.Height = kHeight;
  CU_OK(cu.cuMemcpy2D_v2(&rows));
  CHECK(flat == std::vector<std::uint8_t>(sent.begin(), sent.begin() + kRow * kHeight));
  CUDA_MEMCPY3D_PEER peer{};
  peer.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  peer.srcArray = first;
  peer.srcContext = primary.context;
  peer.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  peer.dstDevice = memory;
  peer.dstContext = primary.context;
  peer.dstPitch = kRow;
  peer.dstHeight = kHeight;
  peer.WidthInBytes = kRow;
  peer.Height = kHeight;
  peer.Depth = kDepth;
  CU_OK(cu.cuMemcpy3DPeerAsync(&peer, stream));
  CU_OK(cu.cuStreamSynchronize(stream));
  CHECK(download<std::uint8_t>(memory, sent.size()) == sent);

  // And as a node of a graph.
  std::fill(back.begin(), back.end(), 0);
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr, last = nullptr;
  CUgraphExec exec = nullptr;
  CU_OK(cu.cuMemsetD8_v2(memory, 7, sent.size()));
  CUDA_MEMCPY3D in = box_of(kRow, kHeight, kDepth);
  in.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  in.srcDevice = memory;
  in.srcPitch = kRow;
  in.srcHeight = kHeight;
  in.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  in.dstArray = first;
  CU_OK(cu.cuGraphCreate(&graph, 0));
  CU_OK(cu.cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &in, primary.context));
  CUDA_MEMCPY3D out = download_from(first, back.data(), kRow, kHeight, kDepth);
  CU_OK(cu.cuGraphAddMemcpyNode(&last, graph, &node, 1, &out, primary.context));
  CU_OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
  CU_OK(cu.cuGraphLaunch(exec, stream));
  CU_OK(cu.cuStreamSynchronize(stream));
  CHECK(back == std::vector<std::uint8_t>(back.size(), 7));
  CU_OK(cu.cuGraphExecDestroy(exec));
  CU_OK(cu.cuGraphDestroy(graph));
  CU_OK(cu.cuStreamDestroy_v2(stream));
  CU_OK(cu.cuArrayDestroy(first));
  CU_OK(cu.cuArrayDestroy(second));
}

TEST_CASE("a box of many frames arrives whole, also when its stream is busy") {
  Primary primary;
  constexpr std::size_t kWidth = 3000, kHeight = 1100, kDepth = 3;
  const std::vector<std::uint8_t> sent = pattern(kWidth * kHeight * kDepth, 21);
  std::vector<std::uint8_t> back(sent.size());
  CUarray array = make_array(shape(kWidth, kHeight, kDepth));
  CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
  Buffer memory(32 << 20);
  for (int round = 0; round < 3; ++round) {
    std::fill(back.begin(), back.end(), 0);
    for (int i = 0; i < 8; ++i) CU_OK(cu.cuMemsetD8Async(memory, 1, 32 << 20, stream));
    CUDA_MEMCPY3D up = upload_to(array, sent.data(), kWidth, kHeight, kDepth);
    CU_OK(cu.cuMemcpy3DAsync_v2(&up, stream));
    CUDA_MEMCPY3D down = download_from(array, back.data(), kWidth, kHeight, kDepth);
    CU_OK(cu.cuMemcpy3DAsync_v2(&down, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(back == sent);
  }
  CU_OK(cu.cuStreamDestroy_v2(stream));
  CU_OK(cu.cuArrayDestroy(array));
}

TEST_CASE("runs of one-dimensional arrays") {
  Primary primary;
  constexpr std::size_t kBytes = 4000;
  CUarray first = make_array(shape(1000, 0, 0, CU_AD_FORMAT_FLOAT));
  CUarray second = make_array(shape(1000, 0, 0, CU_AD_FORMAT_SIGNED_INT32));
  const std::vector<std::uint8_t> sent = pattern(kBytes, 8);
  std::vector<std::uint8_t> back(kBytes);
  Buffer memory(kBytes);
  CUstream stream = make_stream();
  CU_OK(cu.cuMemcpyHtoA_v2(first, 0, sent.data(), kBytes));
  CU_OK(cu.cuMemcpyAtoA_v2(second, 0, first, 0, kBytes));
  CU_OK(cu.cuMemcpyAtoD_v2(memory, second, 400, 800));
  CU_OK(cu.cuMemcpyDtoA_v2(first, 2000, memory, 800));
  CU_OK(cu.cuCtxSynchronize());
  CU_OK(cu.cuMemcpyAtoH_v2(back.data(), first, 2000, 800));
  CHECK(std::vector<std::uint8_t>(back.begin(), back.begin() + 800) ==
        std::vector<std::uint8_t>(sent.begin() + 400, sent.begin() + 1200));
  CU_OK(cu.cuMemcpyHtoAAsync_v2(second, 40, sent.data(), 400, stream));
  CU_OK(cu.cuMemcpyAtoHAsync_v2(back.data(), second, 40, 400, stream));
  CU_OK(cu.cuStreamSynchronize(stream));
  CHECK(std::vector<std::uint8_t>(back.begin(), back.begin() + 400) ==
        std::vector<std::uint8_t>(sent.begin(), sent.begin() + 400));

  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoA_v2(first, 0, sent.data(), kBytes + 4));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoA_v2(first, SIZE_MAX - 3, sent.data(), 8));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoA_v2(first, 2, sent.data(), 4));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpyHtoA_v2(first, 0, nullptr, 4));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu.cuMemcpyAtoH_v2(back.data(), nullptr, 0, 4));
  CU_OK(cu.cuStreamDestroy_v2(stream));
  CU_OK(cu.cuArrayDestroy(first));
  CU_OK(cu.cuArrayDestroy(second));
}

TEST_CASE("arrays and boxes that cannot be are refused") {
  Primary primary;
  CUarray out = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR wanted = shape(16, 16, 0);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuArray3DCreate_v2(nullptr, &wanted));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuArray3DCreate_v2(&out, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuArrayCreate_v2(&out, nullptr));
  const CUDA_ARRAY3D_DESCRIPTOR wrong[] = {
      shape(0, 16, 0),
      shape(16, 0, 3),
      shape(16, 16, 0, CU_AD_FORMAT_FLOAT, 3),
      shape(16, 16, 0, CU_AD_FORMAT_FLOAT, 0),
      shape(std::size_t{1} << 40, 1, 0),
      shape(16, SIZE_MAX, 0),
      shape(SIZE_MAX, SIZE_MAX, SIZE_MAX),
      shape(16, 16, 0, CU_AD_FORMAT_FLOAT, 1, 0x8000),
      shape(16, 16, 5, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP),
      shape(16, 16, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED),
  };
  for (const CUDA_ARRAY3D_DESCRIPTOR& one : wrong) {
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuArray3DCreate_v2(&out, &one));
  }
  CUarray array = make_array(shape(16, 16, 0, CU_AD_FORMAT_FLOAT));
  std::vector<std::uint8_t> host(64 * 64);
  CUDA_MEMCPY3D good = upload_to(array, host.data(), 64, 16, 1);
  CU_OK(cu.cuMemcpy3D_v2(&good));
  auto refused = [&](auto change) {
    CUDA_MEMCPY3D bad = good;
    change(bad);
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpy3D_v2(&bad));
  };
  refused([](CUDA_MEMCPY3D& box) { box.WidthInBytes = 68; });
  refused([](CUDA_MEMCPY3D& box) { box.dstXInBytes = 4; });
  refused([](CUDA_MEMCPY3D& box) { box.dstY = 1; });
  refused([](CUDA_MEMCPY3D& box) { box.dstZ = 1; });
  refused([](CUDA_MEMCPY3D& box) { box.dstY = SIZE_MAX; });
  refused([](CUDA_MEMCPY3D& box) { box.Depth = 2; });
  refused([](CUDA_MEMCPY3D& box) { box.WidthInBytes = 62; });
  refused([](CUDA_MEMCPY3D& box) { box.srcHost = nullptr; });
  CUDA_MEMCPY3D nowhere = good;
  nowhere.dstArray = nullptr;
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu.cuMemcpy3D_v2(&nowhere));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpy3DPeerAsync(nullptr, nullptr));
  CU_OK(cu.cuArrayDestroy(array));
}

TEST_CASE("a batch is its copies one after the other") {
  Primary primary;
  Buffer memory(4096);
  const std::vector<std::uint8_t> sent = pattern(1024, 4);
  std::vector<std::uint8_t> back(1024);
  CUstream stream = make_stream();
  CUdeviceptr to[] = {memory, memory + 2048, reinterpret_cast<CUdeviceptr>(back.data())};
  CUdeviceptr from[] = {reinterpret_cast<CUdeviceptr>(sent.data()), memory, memory + 2048};
  std::size_t sizes[] = {1024, 1024, 1024};
  CUmemcpyAttributes attributes[2]{};
  attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  std::size_t starts[] = {0, 1};
  CU_OK(cu.cuMemcpyBatchAsync_v2(to, from, sizes, 3, attributes, starts, 2, stream));
  CU_OK(cu.cuStreamSynchronize(stream));
  CHECK(back == sent);

  auto wrong = [&](std::size_t count, std::size_t kinds, CUstream where) {
    return cu.cuMemcpyBatchAsync_v2(to, from, sizes, count, attributes, starts, kinds, where);
  };
  CU_IS(CUDA_ERROR_INVALID_VALUE, wrong(0, 0, stream));
  CU_IS(CUDA_ERROR_INVALID_VALUE, wrong(3, 0, stream));
  CU_IS(CUDA_ERROR_INVALID_VALUE, wrong(1, 2, stream));
  CU_IS(CUDA_ERROR_INVALID_VALUE, wrong(3, 2, nullptr));
  starts[0] = 1;
  CU_IS(CUDA_ERROR_INVALID_VALUE, wrong(3, 2, stream));
  starts[0] = 0;
  attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  CU_IS(CUDA_ERROR_INVALID_VALUE, wrong(3, 2, stream));

  CUarray array = make_array(shape(16, 8, 0, CU_AD_FORMAT_FLOAT));
  CUDA_MEMCPY3D_BATCH_OP boxes[2]{};
  boxes[0].src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  boxes[0].src.op.ptr.ptr = memory;
  boxes[0].src.op.ptr.rowLength = 16;
  boxes[0].src.op.ptr.layerHeight = 8;
  boxes[0].dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  boxes[0].dst.op.array.array = array;
  boxes[0].extent = {16, 8, 1};
  boxes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  boxes[1] = boxes[0];
  boxes[1].src = boxes[0].dst;
  boxes[1].src.op.array.offset = {4, 2, 0};
  boxes[1].dst = boxes[0].src;
  boxes[1].dst.op.ptr.ptr = memory + 3072;
  boxes[1].dst.op.ptr.rowLength = 4;
  boxes[1].dst.op.ptr.layerHeight = 2;
  boxes[1].extent = {4, 2, 1};
  CU_OK(cu.cuMemcpy3DBatchAsync_v2(2, boxes, 0, stream));
  CU_OK(cu.cuStreamSynchronize(stream));
  const std::vector<std::uint8_t> part = download<std::uint8_t>(memory + 3072, 32);
  CHECK(std::equal(part.begin(), part.begin() + 16, sent.begin() + 2 * 64 + 16));
  CHECK(std::equal(part.begin() + 16, part.end(), sent.begin() + 3 * 64 + 16));
  boxes[1].extent.depth = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpy3DBatchAsync_v2(2, boxes, 0, stream));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpy3DBatchAsync_v2(0, boxes, 0, stream));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpy3DBatchAsync_v2(1, nullptr, 0, stream));
  CU_OK(cu.cuArrayDestroy(array));
  CU_OK(cu.cuStreamDestroy_v2(stream));
}

TEST_CASE("a pool is found by its place") {
  Primary primary;
  CUmemLocation here{};
  here.type = CU_MEM_LOCATION_TYPE_DEVICE;
  here.id = primary.device;
  CUmemoryPool by_place = nullptr, by_device = nullptr, own = nullptr;
  CU_OK(cu.cuMemGetDefaultMemPool(&by_place, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
  CU_OK(cu.cuDeviceGetDefaultMemPool(&by_device, primary.device));
  CHECK(by_place == by_device);
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = here;
  CU_OK(cu.cuMemPoolCreate(&own, &properties));
  CU_OK(cu.cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, own));
  CU_OK(cu.cuMemGetMemPool(&by_place, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
  CHECK(by_place == own);
  CU_OK(cu.cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, by_device));
  CU_OK(cu.cuMemPoolDestroy(own));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu.cuMemGetMemPool(nullptr, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu.cuMemGetMemPool(&by_place, nullptr, CU_MEM_ALLOCATION_TYPE_PINNED));
  here.id = 1000;
  CU_IS(CUDA_ERROR_INVALID_DEVICE,
        cu.cuMemGetMemPool(&by_place, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
}

TEST_CASE("atomic operations on host memory, and the driver's log") {
  Primary primary;
  const CUatomicOperation operations[] = {CU_ATOMIC_OPERATION_CAS, CU_ATOMIC_OPERATION_FLOAT_ADD};
  int native = -1;
  CU_OK(cu.cuDeviceGetAttribute(&native, CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
                                primary.device));
  unsigned able[2] = {77, 77};
  CU_OK(cu.cuDeviceGetHostAtomicCapabilities(able, operations, 2, primary.device));
  if (native == 0) CHECK((able[0] == 0 && able[1] == 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu.cuDeviceGetHostAtomicCapabilities(nullptr, operations, 2, primary.device));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu.cuDeviceGetHostAtomicCapabilities(able, operations, 2, 1000));

  CUlogsCallbackHandle told = nullptr;
  CU_OK(cu.cuLogsRegisterCallback([](void*, CUlogLevel, char*, std::size_t) {}, nullptr, &told));
  CU_OK(cu.cuLogsUnregisterCallback(told));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuLogsUnregisterCallback(told));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuLogsRegisterCallback(nullptr, nullptr, &told));
  CUlogIterator now = 0;
  CU_OK(cu.cuLogsCurrent(&now, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuLogsCurrent(nullptr, 0));
  char text[64] = "unchanged";
  std::size_t size = sizeof text;
  CU_OK(cu.cuLogsDumpToMemory(&now, text, &size, 0));  // nothing since `now`
  CHECK(size == 0);
  CHECK(text[0] == '\0');
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuLogsDumpToMemory(&now, nullptr, &size, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuLogsDumpToFile(&now, nullptr, 0));
}

TEST_SUITE_END();
