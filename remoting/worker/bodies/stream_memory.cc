// Stream memory operations (apispec/stream.toml).
#include <vector>

#include "worker/bodies/bodies.h"

namespace headrace::worker::bodies {

CUresult cuStreamBatchMemOp_v2(Session& session, const calls::CuStreamBatchMemOp_v2& call) {
  CUstream stream = nullptr;
  if (!session.find(HandleKind::stream, call.stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<CUstreamBatchMemOpParams> operations;
  for (const calls::MemoryOperation& one : call.operations) {
    CUstreamBatchMemOpParams& last = operations.emplace_back();
    last = {};
    last.operation = static_cast<CUstreamBatchMemOpType>(one.type);
    switch (last.operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        last.waitValue.address = one.address;
        last.waitValue.value64 = one.value;
        last.waitValue.flags = one.flags;
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        last.writeValue.address = one.address;
        last.writeValue.value64 = one.value;
        last.writeValue.flags = one.flags;
        break;
      case CU_STREAM_MEM_OP_BARRIER:
        last.memoryBarrier.flags = one.flags;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (operations.empty()) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  return HEADRACE_DRIVER_CALL(session, cuStreamBatchMemOp_v2, stream,
                              static_cast<unsigned>(operations.size()), operations.data(), 0);
}

}  // namespace headrace::worker::bodies
