// Parts of graphs beside their nodes: attributes, user objects, pictures.
#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/cuda/driver.h"

namespace {

void count_up(void* counter) { ++*static_cast<std::atomic<int>*>(counter); }

CUgraphNode add_nothing(CUgraph graph, CUfunction function) {
  CUDA_KERNEL_NODE_PARAMS_v2 params{};
  params.func = function;
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = 32;
  params.blockDimY = params.blockDimZ = 1;
  CUgraphNode node = nullptr;
  CU_OK(cu.cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &params));
  return node;
}

// Destructors may run on a thread of the driver's.
bool becomes(const std::atomic<int>& counter, int wanted) {
  for (int i = 0; i < 5000 && counter != wanted; ++i) usleep(1000);
  return counter == wanted;
}

}  // namespace

TEST_SUITE_BEGIN("graph objects");

TEST_CASE("attributes of kernel nodes are set, copied, and kept when parameters change") {
  Primary primary;
  Kernels kernels;
  CUgraph graph = nullptr;
  CU_OK(cu.cuGraphCreate(&graph, 0));
  CUgraphNode first = add_nothing(graph, kernels["nothing"]);
  CUgraphNode second = add_nothing(graph, kernels["nothing"]);
  CUkernelNodeAttrValue value{}, told{};
  CU_OK(cu.cuGraphKernelNodeGetAttribute(first, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &told));
  CHECK(told.cooperative == 0);
  value.cooperative = 1;
  CU_OK(cu.cuGraphKernelNodeSetAttribute(first, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
  CU_OK(cu.cuGraphKernelNodeCopyAttributes(second, first));
  CUDA_KERNEL_NODE_PARAMS_v2 params{};
  CU_OK(cu.cuGraphKernelNodeGetParams_v2(second, &params));
  params.blockDimX = 64;
  CU_OK(cu.cuGraphKernelNodeSetParams_v2(second, &params));
  CU_OK(cu.cuGraphKernelNodeGetAttribute(second, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &told));
  CHECK(told.cooperative == 1);
  CUgraphExec exec = nullptr;
  CU_OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
  CU_OK(cu.cuGraphLaunch(exec, nullptr));
  CU_OK(cu.cuCtxSynchronize());
  CUgraphNode empty = nullptr;
  CU_OK(cu.cuGraphAddEmptyNode(&empty, graph, nullptr, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu.cuGraphKernelNodeGetAttribute(empty, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &told));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu.cuGraphKernelNodeGetAttribute(first, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu.cuGraphKernelNodeSetAttribute(first, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuGraphKernelNodeCopyAttributes(first, empty));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuGraphKernelNodeCopyAttributes(nullptr, first));
  CU_OK(cu.cuGraphExecDestroy(exec));
  CU_OK(cu.cuGraphDestroy(graph));
}

TEST_CASE("a user object ends once, with the last that holds it") {
  Primary primary;
  Kernels kernels;
  std::atomic<int> ended{0};
  CUuserObject object = nullptr;
  CUgraph graph = nullptr, clone = nullptr;
  CUgraphExec exec = nullptr;
  CU_OK(cu.cuGraphCreate(&graph, 0));
  add_nothing(graph, kernels["nothing"]);
  CU_OK(cu.cuUserObjectCreate(&object, &ended, count_up, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CU_OK(cu.cuUserObjectRetain(object, 2));
  CU_OK(cu.cuUserObjectRelease(object, 1));
  CU_OK(cu.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  CU_OK(cu.cuGraphRetainUserObject(graph, object, 1, 0));
  CU_OK(cu.cuGraphReleaseUserObject(graph, object, 1));
  CU_OK(cu.cuUserObjectRelease(object, 1));  // the graph's is the last one now
  CU_OK(cu.cuGraphClone(&clone, graph));
  CU_OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
  CU_OK(cu.cuGraphDestroy(graph));
  CU_OK(cu.cuGraphLaunch(exec, nullptr));
  CU_OK(cu.cuGraphDestroy(clone));
  CHECK(ended == 0);
  CU_OK(cu.cuGraphExecDestroy(exec));
  CU_OK(cu.cuCtxSynchronize());
  CHECK(becomes(ended, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuUserObjectRelease(object, 1));

  CU_OK(cu.cuUserObjectCreate(&object, &ended, count_up, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CU_OK(cu.cuUserObjectRelease(object, 1));
  CHECK(becomes(ended, 2));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuUserObjectCreate(&object, &ended, count_up, 1, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu.cuUserObjectCreate(nullptr, &ended, count_up, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu.cuUserObjectCreate(&object, &ended, nullptr, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CHECK(ended == 2);
}

TEST_CASE("a picture of a graph names its nodes and edges") {
  Primary primary;
  CUgraph graph = nullptr;
  CUgraphNode first = nullptr, second = nullptr;
  CU_OK(cu.cuGraphCreate(&graph, 0));
  CU_OK(cu.cuGraphAddEmptyNode(&first, graph, nullptr, 0));
  CU_OK(cu.cuGraphAddEmptyNode(&second, graph, &first, 1));
  char path[] = "/tmp/headrace-graph-XXXXXX";
  const int made = mkstemp(path);
  REQUIRE(made >= 0);
  close(made);
  CU_OK(cu.cuGraphDebugDotPrint(graph, path, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE));
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  unlink(path);
  CHECK(text.str().starts_with("digraph"));
  CHECK(text.str().find("EMPTY") != std::string::npos);
  CHECK(text.str().find(" -> ") != std::string::npos);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuGraphDebugDotPrint(graph, nullptr, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuGraphDebugDotPrint(nullptr, path, 0));
  CU_OK(cu.cuGraphDestroy(graph));
}

TEST_SUITE_END();
