// Graphs and capture: held by driverabi/graphs.h, run as calls of this library.
#include <cuda.h>

#include "remoting/driverabi/stream_memory.h"
#include "remoting/softgpu/driver/capture.h"
#include "remoting/softgpu/driver/launch.h"

namespace headrace::softgpu {

// Bodies of other files that launches of graphs are made of.
decltype(::cuLaunchKernelEx) cuLaunchKernelEx;
decltype(::cuMemcpy3DAsync_v2) cuMemcpy3DAsync_v2;
decltype(::cuMemsetD2D8Async) cuMemsetD2D8Async;
decltype(::cuMemsetD2D16Async) cuMemsetD2D16Async;
decltype(::cuMemsetD2D32Async) cuMemsetD2D32Async;
decltype(::cuLaunchHostFunc) cuLaunchHostFunc;
decltype(::cuEventCreate) cuEventCreate;
decltype(::cuEventDestroy_v2) cuEventDestroy_v2;
decltype(::cuEventRecord) cuEventRecord;
decltype(::cuStreamWaitEvent) cuStreamWaitEvent;
decltype(::cuStreamSynchronize) cuStreamSynchronize;
decltype(::cuStreamBatchMemOp_v2) cuStreamBatchMemOp_v2;

namespace {

CUresult stream_of(CUstream handle, driverabi::CaptureStream* out) {
  return with_stream(handle, [&](Runtime&, ContextPtr& context, StreamPtr& stream) {
    *out = capture_stream(*context, *stream);
    return CUDA_SUCCESS;
  });
}

template <typename Body>
CUresult graph_call(const Body& body) noexcept {
  return with_runtime([&](Runtime&) -> CUresult { return body(); });
}

}  // namespace

// Never destroyed: calls may run while the process exits.
Graphs& graphs() {
  static Graphs* const all = new Graphs(
      {stream_of, read_kernel_node, softgpu::cuLaunchKernelEx, softgpu::cuMemcpy3DAsync_v2,
       softgpu::cuMemsetD2D8Async, softgpu::cuMemsetD2D16Async, softgpu::cuMemsetD2D32Async,
       softgpu::cuLaunchHostFunc, softgpu::cuEventCreate, softgpu::cuEventDestroy_v2,
       softgpu::cuEventRecord, softgpu::cuStreamWaitEvent, softgpu::cuStreamSynchronize,
       softgpu::cuStreamBatchMemOp_v2});
  return *all;
}

#include "remoting/driverabi/graph_bodies.inc"

}  // namespace headrace::softgpu
