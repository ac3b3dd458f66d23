// Functions of the program in streams (apispec/execution.toml, stream.toml).
#include "worker/bodies/bodies.h"

namespace headrace::worker::bodies {
namespace {

CUresult add(Session& session, std::uint64_t stream_handle, std::uint64_t number,
             bool tell_errors) {
  if (!session.has_feature(feature_callbacks)) return CUDA_ERROR_NOT_SUPPORTED;
  CUstream stream = nullptr;
  const bool known = session.find(HandleKind::stream, stream_handle, stream);
  CUresult result = known ? session.enter() : CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS) return session.callbacks().add(number, stream, tell_errors);
  session.callbacks().refuse(number, result);
  return result;
}

}  // namespace

CUresult cuLaunchHostFunc(Session& session, const calls::CuLaunchHostFunc& call) {
  return add(session, call.hStream, call.number, /*tell_errors=*/false);
}

CUresult cuStreamAddCallback(Session& session, const calls::CuStreamAddCallback& call) {
  return add(session, call.hStream, call.number, /*tell_errors=*/true);
}

}  // namespace headrace::worker::bodies
