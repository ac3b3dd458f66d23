#include <doctest/doctest.h>

#include <algorithm>
#include <thread>

#include "tests/cuda/driver.h"

namespace {

std::uint32_t value_at(CUdeviceptr memory) { return download<std::uint32_t>(memory, 1).at(0); }

// memory[0] = memory[0] * multiplier + addend
CUresult step(CUfunction function, CUdeviceptr memory, std::uint32_t multiplier,
              std::uint32_t addend, CUstream stream) {
  return launch(function, 1, 1, stream, {&memory, &multiplier, &addend});
}

CUgraphExec instantiate(CUgraph graph) {
  CUgraphExec exec = nullptr;
  CU_OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
  return exec;
}

std::size_t node_count(CUgraph graph) {
  std::size_t count = 0;
  CU_OK(cu.cuGraphGetNodes(graph, nullptr, &count));
  return count;
}

CUstreamCaptureStatus status_of(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  CU_OK(cu.cuStreamIsCapturing(stream, &status));
  return status;
}

// A kernel node of `step` with parameters that live as long as this.
struct StepNode {
  CUdeviceptr memory;
  std::uint32_t multiplier, addend;
  void* params[3] = {&memory, &multiplier, &addend};
  CUDA_KERNEL_NODE_PARAMS_v2 node{};

  StepNode(CUfunction function, CUdeviceptr where, std::uint32_t times, std::uint32_t plus)
      : memory(where), multiplier(times), addend(plus) {
    node.func = function;
    node.gridDimX = node.gridDimY = node.gridDimZ = 1;
    node.blockDimX = node.blockDimY = node.blockDimZ = 1;
    node.kernelParams = params;
  }
};

// Everything a capture test needs; the capture is over when it ends.
struct Bench {
  Primary primary;
  Kernels kernels;
  CUfunction function = kernels["step"];
  Buffer memory{4};
  CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
  Bench() { CU_OK(cu.cuMemsetD32_v2(memory, 1, 1)); }
  ~Bench() { CU_IS(CUDA_SUCCESS, cu.cuStreamDestroy_v2(stream)); }
  CUresult begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    return cu.cuStreamBeginCapture_v2(stream, mode);
  }
  // Ends a capture that failed.
  void end_failed(CUresult expected) {
    CUgraph graph = reinterpret_cast<CUgraph>(1);
    CU_IS(expected, cu.cuStreamEndCapture(stream, &graph));
    CHECK(graph == nullptr);
    CHECK(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
  }
};

void CUDA_CB add_one(void* counter) { ++*static_cast<int*>(counter); }

}  // namespace

TEST_SUITE("graphs") {
  TEST_CASE("captured work runs at launches only") {
    Bench bench;
    CU_OK(cu.cuStreamSynchronize(nullptr));
    CU_OK(bench.begin());
    CHECK(status_of(bench.stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CU_OK(step(bench.function, bench.memory, 3, 1, bench.stream));
    CU_OK(step(bench.function, bench.memory, 5, 2, bench.stream));
    CUgraph graph = nullptr;
    CU_OK(cu.cuStreamEndCapture(bench.stream, &graph));
    CHECK(status_of(bench.stream) == CU_STREAM_CAPTURE_STATUS_NONE);
    CHECK(node_count(graph) == 2);
    CHECK(value_at(bench.memory) == 1);
    CUgraphExec exec = instantiate(graph);
    CU_OK(cu.cuGraphDestroy(graph));  // the instance stands by itself
    CU_OK(cu.cuGraphUpload(exec, bench.stream));
    std::uint32_t expected = 1;
    for (int i = 0; i < 3; ++i) {
      CU_OK(cu.cuGraphLaunch(exec, bench.stream));
      expected = (expected * 3 + 1) * 5 + 2;
    }
    CU_OK(cu.cuStreamSynchronize(bench.stream));
    CHECK(value_at(bench.memory) == expected);
    CU_OK(cu.cuGraphExecDestroy(exec));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuGraphLaunch(nullptr, bench.stream));
  }

  TEST_CASE("launches of one graph follow each other across streams") {
    Bench bench;
    CU_OK(cu.cuCtxSynchronize());
    CUfunction slow = bench.kernels["slow_step"];
    CUdeviceptr where = bench.memory;
    std::uint32_t times = 3, plus = 1, turns = 20000;
    CU_OK(bench.begin());
    CU_OK(launch(slow, 1, 1, bench.stream, {&where, &times, &plus, &turns}));
    CUgraph graph = nullptr;
    CU_OK(cu.cuStreamEndCapture(bench.stream, &graph));
    CUgraphExec exec = instantiate(graph);
    CUstream other = make_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 4; ++i) CU_OK(cu.cuGraphLaunch(exec, i % 2 == 0 ? bench.stream : other));
    CU_OK(cu.cuCtxSynchronize());
    CHECK(value_at(bench.memory) == 121);
    CU_OK(cu.cuGraphExecDestroy(exec));
    CU_OK(cu.cuGraphDestroy(graph));
    CU_OK(cu.cuStreamDestroy_v2(other));
  }

  TEST_CASE("events fork a capture into other streams and join it") {
    Bench bench;
    CU_OK(cu.cuCtxSynchronize());
    Buffer second(4);
    CUstream side = make_stream(CU_STREAM_NON_BLOCKING);
    CUevent fork = nullptr, join = nullptr;
    CU_OK(cu.cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    CU_OK(cu.cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    CU_OK(bench.begin());
    CU_OK(step(bench.function, bench.memory, 3, 1, bench.stream));
    CU_OK(cu.cuEventRecord(fork, bench.stream));
    CU_OK(cu.cuStreamWaitEvent(side, fork, 0));
    CHECK(status_of(side) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CU_OK(cu.cuMemcpyDtoDAsync_v2(second, bench.memory, 4, side));
    CU_OK(step(bench.function, second, 7, 0, side));
    CU_OK(cu.cuEventRecord(join, side));
    CU_OK(cu.cuStreamWaitEvent(bench.stream, join, 0));
    CU_OK(cu.cuMemcpyDtoDAsync_v2(bench.memory, second, 4, bench.stream));
    CUgraph graph = nullptr;
    CU_OK(cu.cuStreamEndCapture(bench.stream, &graph));
    CHECK(status_of(side) == CU_STREAM_CAPTURE_STATUS_NONE);
    CHECK(node_count(graph) == 4);
    std::size_t roots = 0, edges = 0;
    CU_OK(cu.cuGraphGetRootNodes(graph, nullptr, &roots));
    CHECK(roots == 1);
    CU_OK(cu.cuGraphGetEdges(graph, nullptr, nullptr, &edges));
    CHECK(edges == 4);  // the last copy waits for both streams
    CUgraphExec exec = instantiate(graph);
    CU_OK(cu.cuGraphLaunch(exec, bench.stream));
    CU_OK(cu.cuStreamSynchronize(bench.stream));
    CHECK(value_at(bench.memory) == 28);
    CU_IS(CUDA_ERROR_CAPTURED_EVENT, cu.cuEventQuery(join));
    CU_OK(cu.cuEventRecord(join, bench.stream));
    CU_OK(cu.cuEventSynchronize(join));
    CU_OK(cu.cuGraphExecDestroy(exec));
    CU_OK(cu.cuGraphDestroy(graph));
    CU_OK(cu.cuEventDestroy_v2(fork));
    CU_OK(cu.cuEventDestroy_v2(join));
    CU_OK(cu.cuStreamDestroy_v2(side));
  }

  TEST_CASE("a fork that is not joined fails the capture") {
    Bench bench;
    CUstream side = make_stream(CU_STREAM_NON_BLOCKING);
    CUevent fork = nullptr;
    CU_OK(cu.cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    CU_OK(bench.begin());
    CU_OK(cu.cuEventRecord(fork, bench.stream));
    CU_OK(cu.cuStreamWaitEvent(side, fork, 0));
    CU_OK(step(bench.function, bench.memory, 1, 1, side));
    bench.end_failed(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    CHECK(status_of(side) == CU_STREAM_CAPTURE_STATUS_NONE);
    CU_OK(cu.cuEventDestroy_v2(fork));
    CU_OK(cu.cuStreamDestroy_v2(side));
  }

  TEST_CASE("calls that a capture cannot hold invalidate it") {
    Bench bench;
    CU_OK(cu.cuCtxSynchronize());
    CU_OK(bench.begin());
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamSynchronize(bench.stream));
    CHECK(status_of(bench.stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
          step(bench.function, bench.memory, 1, 1, bench.stream));
    bench.end_failed(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    CU_OK(bench.begin());
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamQuery(bench.stream));
    bench.end_failed(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    CUevent outside = nullptr;
    CU_OK(cu.cuEventCreate(&outside, CU_EVENT_DISABLE_TIMING));
    CU_OK(cu.cuEventRecord(outside, nullptr));
    CU_OK(bench.begin());
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cu.cuStreamWaitEvent(bench.stream, outside, 0));
    bench.end_failed(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CU_OK(cu.cuEventDestroy_v2(outside));
    CHECK(value_at(bench.memory) == 1);
  }

  TEST_CASE("the legacy stream cannot be captured, nor used beside a blocking stream that is") {
    Bench bench;
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
          cu.cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUstream blocking = make_stream(CU_STREAM_DEFAULT);
    CU_OK(cu.cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, step(bench.function, bench.memory, 1, 1, nullptr));
    CUgraph graph = nullptr;
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(blocking, &graph));
    CU_OK(cu.cuStreamDestroy_v2(blocking));
  }

  TEST_CASE("modes decide which calls may upset a capture") {
    Bench bench;
    CUdeviceptr more = 0;
    CU_OK(bench.begin(CU_STREAM_CAPTURE_MODE_GLOBAL));
    CU_IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cu.cuMemAlloc_v2(&more, 4));
    bench.end_failed(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    CUgraph graph = nullptr;
    CU_OK(bench.begin(CU_STREAM_CAPTURE_MODE_RELAXED));
    CU_OK(cu.cuMemAlloc_v2(&more, 4));
    CU_OK(cu.cuStreamEndCapture(bench.stream, &graph));
    CU_OK(cu.cuGraphDestroy(graph));

    CU_OK(bench.begin(CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CU_OK(cu.cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    CU_OK(cu.cuMemFree_v2(more));
    CU_OK(cu.cuThreadExchangeStreamCaptureMode(&mode));
    CU_OK(cu.cuStreamEndCapture(bench.stream, &graph));
    CU_OK(cu.cuGraphDestroy(graph));

    // Another thread's call matters to a global capture, not to a thread's own.
    for (bool global : {true, false}) {
      CU_OK(bench.begin(global ? CU_STREAM_CAPTURE_MODE_GLOBAL
                               : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
      CUresult made = CUDA_ERROR_UNKNOWN;
      std::thread([&] {
        cu.cuCtxSetCurrent(bench.primary.context);
        made = cu.cuMemAlloc_v2(&more, 4);
      }).join();
      CHECK(made == (global ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS));
      if (global) {
        bench.end_failed(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
      } else {
        CU_OK(cu.cuStreamEndCapture(bench.stream, &graph));
        CU_OK(cu.cuGraphDestroy(graph));
      }
    }
    CU_OK(cu.cuMemFree_v2(more));
    CU_IS(CUDA_ERROR_INVALID_VALUE, bench.begin(static_cast<CUstreamCaptureMode>(7)));
  }

  TEST_CASE("a capture is ended where it began") {
    Bench bench;
    CUgraph graph = nullptr;
    CU_OK(bench.begin());
    CUresult elsewhere = CUDA_SUCCESS;
    std::thread([&] { elsewhere = cu.cuStreamEndCapture(bench.stream, &graph); }).join();
    CHECK(elsewhere == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    CU_IS(CUDA_ERROR_ILLEGAL_STATE, bench.begin());
    CU_OK(cu.cuStreamEndCapture(bench.stream, &graph));
    CHECK(node_count(graph) == 0);
    CU_OK(cu.cuGraphDestroy(graph));
    CU_IS(CUDA_ERROR_ILLEGAL_STATE, cu.cuStreamEndCapture(bench.stream, &graph));
  }

  TEST_CASE("a capture tells its graph and takes dependencies") {
    Bench bench;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0, again = 0;
    CUgraph graph = nullptr, same = nullptr;
    const CUgraphNode* after = nullptr;
    std::size_t count = 9;
    CU_OK(bench.begin());
    CU_OK(cu.cuStreamGetCaptureInfo_v2(bench.stream, &status, &id, &graph, &after, &count));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CHECK(count == 0);
    CU_OK(step(bench.function, bench.memory, 3, 1, bench.stream));
    const CUgraphEdgeData* edges = nullptr;
    CU_OK(
        cu.cuStreamGetCaptureInfo_v3(bench.stream, &status, &again, &same, &after, &edges, &count));
    CHECK(id == again);
    CHECK(graph == same);
    REQUIRE(count == 1);
    CUgraphNode captured = after[0], mine = nullptr;
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    CU_OK(cu.cuGraphNodeGetType(captured, &type));
    CHECK(type == CU_GRAPH_NODE_TYPE_KERNEL);
    // A node of our own between two captured ones.
    StepNode node(bench.function, bench.memory, 5, 2);
    CU_OK(cu.cuGraphAddKernelNode_v2(&mine, graph, &captured, 1, &node.node));
    CU_OK(cu.cuStreamUpdateCaptureDependencies(bench.stream, &mine, 1,
                                               CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    CU_OK(step(bench.function, bench.memory, 7, 3, bench.stream));
    CU_OK(cu.cuStreamEndCapture(bench.stream, &same));
    CHECK(graph == same);
    CUgraphExec exec = instantiate(graph);
    CU_OK(cu.cuGraphLaunch(exec, bench.stream));
    CU_OK(cu.cuStreamSynchronize(bench.stream));
    CHECK(value_at(bench.memory) == ((1 * 3 + 1) * 5 + 2) * 7 + 3);
    CU_OK(cu.cuGraphExecDestroy(exec));
    CU_OK(cu.cuGraphDestroy(graph));
  }

  TEST_CASE("graphs are built by hand") {
    Bench bench;
    CU_OK(cu.cuCtxSynchronize());
    std::uint32_t from = 11, to = 0;
    int calls = 0;
    CUgraph graph = nullptr;
    CU_OK(cu.cuGraphCreate(&graph, 0));
    CUgraphNode set, in, kernel, host, out, empty;
    CUDA_MEMSET_NODE_PARAMS fill{bench.memory, 0, 9, 4, 1, 1};
    CU_OK(cu.cuGraphAddMemsetNode(&set, graph, nullptr, 0, &fill, bench.primary.context));
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = &from;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = bench.memory;
    copy.WidthInBytes = 4;
    copy.Height = copy.Depth = 1;
    CU_OK(cu.cuGraphAddMemcpyNode(&in, graph, &set, 1, &copy, bench.primary.context));
    StepNode node(bench.function, bench.memory, 3, 1);
    CU_OK(cu.cuGraphAddKernelNode_v2(&kernel, graph, nullptr, 0, &node.node));
    CU_OK(cu.cuGraphAddDependencies(graph, &in, &kernel, 1));
    CUDA_HOST_NODE_PARAMS call{add_one, &calls};
    CU_OK(cu.cuGraphAddHostNode(&host, graph, &kernel, 1, &call));
    CUDA_MEMCPY3D back{};
    back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    back.srcDevice = bench.memory;
    back.dstMemoryType = CU_MEMORYTYPE_HOST;
    back.dstHost = &to;
    back.WidthInBytes = 4;
    back.Height = back.Depth = 1;
    CU_OK(cu.cuGraphAddMemcpyNode(&out, graph, &host, 1, &back, bench.primary.context));
    CU_OK(cu.cuGraphAddEmptyNode(&empty, graph, &out, 1));
    CHECK(node_count(graph) == 6);
    CUgraphExec exec = instantiate(graph);
    for (std::uint32_t value : {11u, 20u}) {
      from = value;  // read at each launch
      CU_OK(cu.cuGraphLaunch(exec, bench.stream));
      CU_OK(cu.cuStreamSynchronize(bench.stream));
      CHECK(to == value * 3 + 1);
    }
    CHECK(calls == 2);

    CUDA_KERNEL_NODE_PARAMS_v2 shown{};
    CU_OK(cu.cuGraphKernelNodeGetParams_v2(kernel, &shown));
    CHECK(shown.func == bench.function);
    CHECK(shown.blockDimX == 1);
    REQUIRE(shown.kernelParams != nullptr);
    CHECK(*static_cast<std::uint32_t*>(shown.kernelParams[1]) == 3);
    std::size_t count = 0;
    CU_OK(cu.cuGraphNodeGetDependencies(kernel, nullptr, &count));
    CHECK(count == 1);

    // A clone is a graph of its own.
    CUgraph twin = nullptr;
    CUgraphNode twin_kernel = nullptr;
    CU_OK(cu.cuGraphClone(&twin, graph));
    CU_OK(cu.cuGraphNodeFindInClone(&twin_kernel, kernel, twin));
    CHECK(twin_kernel != kernel);
    CU_OK(cu.cuGraphDestroyNode(empty));
    CHECK(node_count(graph) == 5);
    CHECK(node_count(twin) == 6);

    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuGraphAddEmptyNode(&empty, graph, &twin_kernel, 1));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuGraphAddDependencies(graph, &kernel, &kernel, 1));
    CU_OK(cu.cuGraphDestroy(twin));
    CU_OK(cu.cuGraphExecDestroy(exec));
    CU_OK(cu.cuGraphDestroy(graph));
  }

  TEST_CASE("an instance takes new parameters, not a new shape") {
    Bench bench;
    CUgraph graph = nullptr, other = nullptr;
    CUgraphNode first, second;
    CU_OK(cu.cuGraphCreate(&graph, 0));
    StepNode node(bench.function, bench.memory, 3, 1);
    CU_OK(cu.cuGraphAddKernelNode_v2(&first, graph, nullptr, 0, &node.node));
    CUgraphExec exec = instantiate(graph);
    StepNode changed(bench.function, bench.memory, 1, 40);
    CU_OK(cu.cuGraphExecKernelNodeSetParams_v2(exec, first, &changed.node));
    CU_OK(cu.cuGraphLaunch(exec, bench.stream));
    CU_OK(cu.cuStreamSynchronize(bench.stream));
    CHECK(value_at(bench.memory) == 41);

    // The graph itself did not change; the instance takes its parameters again.
    CUgraphExecUpdateResultInfo info{};
    CU_OK(cu.cuGraphExecUpdate_v2(exec, graph, &info));
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    CU_OK(cu.cuGraphLaunch(exec, bench.stream));
    CU_OK(cu.cuStreamSynchronize(bench.stream));
    CHECK(value_at(bench.memory) == 41 * 3 + 1);

    CU_OK(cu.cuGraphKernelNodeSetParams_v2(first, &changed.node));
    CU_OK(cu.cuGraphClone(&other, graph));
    CU_OK(cu.cuGraphAddEmptyNode(&second, other, nullptr, 0));
    CU_IS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cu.cuGraphExecUpdate_v2(exec, other, &info));
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);

    node.node.blockDimX = 4096;
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuGraphKernelNodeSetParams_v2(first, &node.node));
    CU_OK(cu.cuGraphDestroy(other));
    CU_OK(cu.cuGraphExecDestroy(exec));
    CU_OK(cu.cuGraphDestroy(graph));
  }

  TEST_CASE("graphs hold graphs") {
    Bench bench;
    CUgraph inner = nullptr, outer = nullptr, captured = nullptr;
    CUgraphNode node, child, last;
    CU_OK(cu.cuGraphCreate(&inner, 0));
    StepNode times(bench.function, bench.memory, 3, 1), plus(bench.function, bench.memory, 1, 5);
    CU_OK(cu.cuGraphAddKernelNode_v2(&node, inner, nullptr, 0, &times.node));
    CU_OK(cu.cuGraphCreate(&outer, 0));
    CU_OK(cu.cuGraphAddChildGraphNode(&child, outer, nullptr, 0, inner));
    CU_OK(cu.cuGraphAddKernelNode_v2(&last, outer, &child, 1, &plus.node));
    CUgraphExec exec = instantiate(outer);
    CU_OK(cu.cuGraphLaunch(exec, bench.stream));
    CU_OK(cu.cuStreamSynchronize(bench.stream));
    CHECK(value_at(bench.memory) == 9);

    // A launch into a capture becomes one node.
    CU_OK(bench.begin());
    CU_OK(cu.cuGraphLaunch(exec, bench.stream));
    CU_OK(cu.cuGraphLaunch(exec, bench.stream));
    CU_OK(cu.cuStreamEndCapture(bench.stream, &captured));
    CHECK(node_count(captured) == 2);
    CUgraphExec both = instantiate(captured);
    CU_OK(cu.cuGraphLaunch(both, bench.stream));
    CU_OK(cu.cuStreamSynchronize(bench.stream));
    CHECK(value_at(bench.memory) == (9 * 3 + 6) * 3 + 6);
    CU_OK(cu.cuGraphExecDestroy(both));
    CU_OK(cu.cuGraphExecDestroy(exec));
    for (CUgraph graph : {inner, outer, captured}) CU_OK(cu.cuGraphDestroy(graph));
  }
}
