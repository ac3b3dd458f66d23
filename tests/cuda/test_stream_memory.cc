// Stream memory operations, and events of a whole context.
#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "tests/cuda/driver.h"

namespace {

constexpr std::uint32_t kWait32 = CU_STREAM_MEM_OP_WAIT_VALUE_32;
constexpr std::uint32_t kWrite32 = CU_STREAM_MEM_OP_WRITE_VALUE_32;

CUstreamBatchMemOpParams operation(std::uint32_t type, CUdeviceptr address, std::uint64_t value,
                                   unsigned flags) {
  CUstreamBatchMemOpParams out{};
  out.operation = static_cast<CUstreamBatchMemOpType>(type);
  if (type == CU_STREAM_MEM_OP_BARRIER) {
    out.memoryBarrier.flags = flags;
    return out;
  }
  out.waitValue.address = address;
  out.waitValue.value64 = value;
  out.waitValue.flags = flags;
  return out;
}

std::uint32_t word(CUdeviceptr address, CUstream stream) {
  std::uint32_t out = 0;
  CU_OK(cu.cuMemcpyDtoHAsync_v2(&out, address, sizeof out, stream));
  CU_OK(cu.cuStreamSynchronize(stream));
  return out;
}

}  // namespace

TEST_SUITE_BEGIN("stream memory");

TEST_CASE("a stream waits for a value, and no other stream with it") {
  Primary primary;
  int able = 0;
  CU_OK(cu.cuDeviceGetAttribute(&able, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
                                primary.device));
  REQUIRE(able == 1);
  Buffer memory(4096);
  CU_OK(cu.cuMemsetD32_v2(memory, 0, 1024));
  CU_OK(cu.cuCtxSynchronize());
  CUstream waiting = make_stream(CU_STREAM_NON_BLOCKING);
  CUstream other = make_stream(CU_STREAM_NON_BLOCKING);
  for (std::uint32_t round = 1; round <= 20; ++round) {
    CU_OK(cu.cuStreamWaitValue32_v2(waiting, memory, round, CU_STREAM_WAIT_VALUE_EQ));
    CU_OK(cu.cuMemsetD32Async(memory + 64, round, 1, waiting));
    CU_IS(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(waiting));
    CU_OK(cu.cuMemsetD32Async(memory + 128, round, 1, other));
    CHECK(word(memory + 128, other) == round);
    CHECK(word(memory + 64, other) == round - 1);
    CU_IS(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(waiting));
    CU_OK(cu.cuStreamWriteValue32_v2(other, memory, round, CU_STREAM_WRITE_VALUE_DEFAULT));
    CU_OK(cu.cuStreamSynchronize(waiting));
    CHECK(word(memory + 64, other) == round);
  }
  CU_OK(cu.cuStreamDestroy_v2(waiting));
  CU_OK(cu.cuStreamDestroy_v2(other));
}

TEST_CASE("each comparison of a wait") {
  Primary primary;
  Buffer memory(64);
  struct Row {
    unsigned flags;
    bool wide;
    std::uint64_t value, before, after;  // `before` does not end the wait, `after` does
  };
  const Row rows[] = {
      {CU_STREAM_WAIT_VALUE_GEQ, false, 5, 4, 5},
      {CU_STREAM_WAIT_VALUE_GEQ, false, 5, 0x80000005u, 0x80000004u},
      {CU_STREAM_WAIT_VALUE_GEQ, false, 0xfffffff0u, 0xffffffefu, 3},
      {CU_STREAM_WAIT_VALUE_EQ, false, 7, 8, 7},
      {CU_STREAM_WAIT_VALUE_AND, false, 6, 9, 4},
      {CU_STREAM_WAIT_VALUE_NOR, false, 0xffff0000u, 0x0000ffffu, 0x0000fffeu},
      {CU_STREAM_WAIT_VALUE_GEQ, true, std::uint64_t{1} << 40, 7, (std::uint64_t{1} << 40) + 1},
      {CU_STREAM_WAIT_VALUE_EQ, true, 0x100000007u, 7, 0x100000007u},
      {CU_STREAM_WAIT_VALUE_AND, true, std::uint64_t{1} << 33, 0xffffffffu, std::uint64_t{3} << 33},
      {CU_STREAM_WAIT_VALUE_NOR, true, 0xffffffffu, 0xffffffff00000000u, 0x7fffffff00000000u},
  };
  CUstream waiting = make_stream(CU_STREAM_NON_BLOCKING);
  CUstream writing = make_stream(CU_STREAM_NON_BLOCKING);
  auto write = [&](const Row& row, std::uint64_t value) {
    if (row.wide) {
      CU_OK(cu.cuStreamWriteValue64_v2(writing, memory, value, 0));
    } else {
      CU_OK(cu.cuStreamWriteValue32_v2(writing, memory, static_cast<std::uint32_t>(value), 0));
    }
    CU_OK(cu.cuStreamSynchronize(writing));
  };
  for (const Row& row : rows) {
    CAPTURE(row.flags);
    CAPTURE(row.value);
    write(row, row.before);
    if (row.wide) {
      CU_OK(cu.cuStreamWaitValue64_v2(waiting, memory, row.value, row.flags));
    } else {
      CU_OK(cu.cuStreamWaitValue32_v2(waiting, memory, static_cast<std::uint32_t>(row.value),
                                      row.flags));
    }
    std::this_thread::yield();
    CU_IS(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(waiting));
    write(row, row.after);
    CU_OK(cu.cuStreamSynchronize(waiting));
  }
  CU_OK(cu.cuStreamDestroy_v2(waiting));
  CU_OK(cu.cuStreamDestroy_v2(writing));
}

TEST_CASE("operations of a batch follow each other, also in a graph") {
  Primary primary;
  Buffer memory(64);
  CU_OK(cu.cuMemsetD32_v2(memory, 0, 16));
  CUstream stream = make_stream();
  CUstreamBatchMemOpParams batch[] = {
      operation(kWrite32, memory, 1, 0),
      operation(kWait32, memory, 1, CU_STREAM_WAIT_VALUE_EQ),
      operation(CU_STREAM_MEM_OP_BARRIER, 0, 0, CU_STREAM_MEMORY_BARRIER_TYPE_GPU),
      operation(CU_STREAM_MEM_OP_WRITE_VALUE_64, memory + 8, 0x500000006u, 0),
      operation(CU_STREAM_MEM_OP_WAIT_VALUE_64, memory + 8, 0x500000006u, CU_STREAM_WAIT_VALUE_EQ),
      operation(kWrite32, memory, 3, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER),
  };
  CU_OK(cu.cuStreamBatchMemOp_v2(stream, 6, batch, 0));
  CU_OK(cu.cuStreamSynchronize(stream));
  CHECK(download<std::uint32_t>(memory, 4) == std::vector<std::uint32_t>{3, 0, 6, 5});

  CUgraph graph = nullptr;
  CU_OK(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CU_OK(cu.cuStreamWriteValue32_v2(stream, memory + 16, 8, 0));
  CU_OK(cu.cuStreamBatchMemOp_v2(stream, 6, batch, 0));
  CU_OK(cu.cuStreamEndCapture(stream, &graph));
  CUgraphNode nodes[2] = {};
  std::size_t count = 2;
  CU_OK(cu.cuGraphGetNodes(graph, nodes, &count));
  REQUIRE(count == 2);
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  CU_OK(cu.cuGraphNodeGetType(nodes[0], &type));
  CHECK(type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  CUDA_BATCH_MEM_OP_NODE_PARAMS shown{};
  CU_OK(cu.cuGraphBatchMemOpNodeGetParams(nodes[1], &shown));
  REQUIRE(shown.count == 6);
  CHECK(shown.paramArray[5].writeValue.value == 3);

  // A node of the program's own behind them.
  CUstreamBatchMemOpParams last = operation(kWrite32, memory + 20, 9, 0);
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{primary.context, 1, &last, 0};
  CUgraphNode own = nullptr;
  CU_OK(cu.cuGraphAddBatchMemOpNode(&own, graph, &nodes[1], 1, &params));
  CUgraphExec exec = nullptr;
  CU_OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
  CU_OK(cu.cuMemsetD32_v2(memory, 0, 16));
  CU_OK(cu.cuGraphLaunch(exec, stream));
  CU_OK(cu.cuStreamSynchronize(stream));
  CHECK(download<std::uint32_t>(memory, 6) == std::vector<std::uint32_t>{3, 0, 6, 5, 8, 9});
  last.writeValue.value = 10;
  CU_OK(cu.cuGraphExecBatchMemOpNodeSetParams(exec, own, &params));
  CU_OK(cu.cuGraphLaunch(exec, stream));
  CU_OK(cu.cuStreamSynchronize(stream));
  CHECK(download<std::uint32_t>(memory + 20, 1) == std::vector<std::uint32_t>{10});
  params.count = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuGraphBatchMemOpNodeSetParams(own, &params));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuGraphBatchMemOpNodeSetParams(own, nullptr));
  CU_OK(cu.cuGraphExecDestroy(exec));
  CU_OK(cu.cuGraphDestroy(graph));
  CU_OK(cu.cuStreamDestroy_v2(stream));
}

TEST_CASE("memory operations that are wrong are refused at the call") {
  Primary primary;
  Buffer memory(64);
  CUstream stream = make_stream();
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuStreamWaitValue32_v2(stream, 0, 1, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuStreamWaitValue32_v2(stream, memory + 2, 1, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuStreamWaitValue64_v2(stream, memory + 4, 1, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuStreamWaitValue32_v2(stream, memory, 1, 0x10));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuStreamWriteValue32_v2(stream, memory, 1, 2));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuStreamWriteValue32_v2(stream, 0, 1, 0));
  std::uint64_t own = 0;  // memory that CUDA was never told of
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu.cuStreamWriteValue64_v2(stream, reinterpret_cast<CUdeviceptr>(&own), 1, 0));
  CUstreamBatchMemOpParams batch[] = {operation(kWrite32, memory, 1, 0),
                                      operation(77, memory, 1, 0)};
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuStreamBatchMemOp_v2(stream, 2, batch, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuStreamBatchMemOp_v2(stream, 1, nullptr, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuStreamBatchMemOp_v2(stream, 1, batch, 1));
  const std::vector<CUstreamBatchMemOpParams> many(300, batch[0]);
  CU_IS(
      CUDA_ERROR_INVALID_VALUE,
      cu.cuStreamBatchMemOp_v2(stream, 300, const_cast<CUstreamBatchMemOpParams*>(many.data()), 0));
  CUstream ended = make_stream();
  CU_OK(cu.cuStreamDestroy_v2(ended));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu.cuStreamWriteValue32_v2(ended, memory, 1, 0));
  CU_OK(cu.cuStreamSynchronize(stream));
  CU_OK(cu.cuStreamDestroy_v2(stream));
}

TEST_CASE("a wait that nobody satisfies ends with its context, and stops no program's end") {
  Primary primary;
  CUcontext own = nullptr;
  CUdeviceptr memory = 0;
  CU_OK(cu.cuCtxCreate_v2(&own, 0, primary.device));
  CU_OK(cu.cuMemAlloc_v2(&memory, 64));
  CU_OK(cu.cuMemsetD32_v2(memory, 0, 16));
  CU_OK(cu.cuCtxSynchronize());
  CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
  CU_OK(cu.cuStreamWaitValue32_v2(stream, memory, 1, CU_STREAM_WAIT_VALUE_EQ));
  CU_IS(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(stream));
  CU_OK(cu.cuCtxDestroy_v2(own));
  CHECK(run_child("unsatisfied_wait") == 0);
}

TEST_CASE("an event of a context is recorded behind, and waited for by, all its streams") {
  Primary primary;
  Buffer memory(64);
  CU_OK(cu.cuMemsetD32_v2(memory, 0, 16));
  CU_OK(cu.cuCtxSynchronize());
  CUstream first = make_stream(CU_STREAM_NON_BLOCKING);
  CUstream second = make_stream(CU_STREAM_NON_BLOCKING);
  CUevent event = nullptr;
  CU_OK(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CU_OK(cu.cuStreamWaitValue32_v2(first, memory, 1, CU_STREAM_WAIT_VALUE_EQ));
  CU_OK(cu.cuCtxRecordEvent(primary.context, event));
  CU_IS(CUDA_ERROR_NOT_READY, cu.cuEventQuery(event));
  CU_OK(cu.cuStreamWriteValue32_v2(second, memory, 1, 0));
  CU_OK(cu.cuEventSynchronize(event));

  CU_OK(cu.cuStreamWaitValue32_v2(first, memory, 2, CU_STREAM_WAIT_VALUE_EQ));
  CU_OK(cu.cuEventRecord(event, first));
  CU_OK(cu.cuStreamWriteValue32_v2(second, memory, 2, 0));
  CU_OK(cu.cuCtxWaitEvent(primary.context, event));
  CU_OK(cu.cuMemsetD32Async(memory + 4, 5, 1, second));
  CU_OK(cu.cuStreamSynchronize(second));
  CU_OK(cu.cuEventQuery(event));
  CHECK(download<std::uint32_t>(memory, 2) == std::vector<std::uint32_t>{2, 5});

  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu.cuCtxRecordEvent(primary.context, nullptr));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu.cuCtxWaitEvent(primary.context, nullptr));
  CU_OK(cu.cuStreamBeginCapture_v2(first, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuCtxRecordEvent(primary.context, event));
  CUgraph graph = nullptr;
  CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(first, &graph));
  CU_OK(cu.cuEventDestroy_v2(event));
  CU_OK(cu.cuStreamDestroy_v2(first));
  CU_OK(cu.cuStreamDestroy_v2(second));
}

TEST_SUITE_END();
