// Graphs and capture: held in this process, launched as the calls that they consist of.
#include "client/captures.h"
#include "client/launches.h"
#include "client/remote.h"
#include "client/streams.h"
#include "driverabi/stream_memory.h"
#include "gen/client_families.h"

namespace headrace::client {
namespace {

CUresult stream_of(CUstream handle, driverabi::CaptureStream* out) {
  Context* context = nullptr;
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  std::uint64_t id = 0;
  if (const CUresult bad = resolve_stream(handle, id); bad != CUDA_SUCCESS) return bad;
  const std::shared_ptr<Stream> stream = process().streams.find(id);
  if (stream != nullptr) {
    context = stream->context;
  } else if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) {
    return state;
  }
  *out = capture_stream(*context, id);
  return CUDA_SUCCESS;
}

}  // namespace

// Never destroyed: calls may run while the process exits.
Graphs& graphs() {
  static Graphs* const all = new Graphs(
      {stream_of, read_kernel_node, families::cuLaunchKernelEx, families::cuMemcpy3DAsync_v2,
       families::cuMemsetD2D8Async, families::cuMemsetD2D16Async, families::cuMemsetD2D32Async,
       families::cuLaunchHostFunc, families::cuEventCreate, families::cuEventDestroy_v2,
       families::cuEventRecord, families::cuStreamWaitEvent, families::cuStreamSynchronize,
       families::cuStreamBatchMemOp_v2});
  return *all;
}

namespace families {
namespace {

template <typename Body>
CUresult graph_call(const Body& body) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  return body();
}

}  // namespace

#include "driverabi/graph_bodies.inc"

}  // namespace families
}  // namespace headrace::client
