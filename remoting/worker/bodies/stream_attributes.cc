// Attributes of streams (apispec/stream.toml): those whose values name nothing of this machine.
#include <cstring>

#include "worker/bodies/bodies.h"

namespace headrace::worker::bodies {
namespace {

bool carried(std::int32_t which) {
  switch (which) {
    case CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_STREAM_ATTRIBUTE_PRIORITY:
    case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return true;
    default:
      return false;
  }
}

}  // namespace

CUresult cuStreamSetAttribute(Session& session, const calls::CuStreamSetAttribute& call) {
  CUstream stream = nullptr;
  if (!session.find(HandleKind::stream, call.hStream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (!carried(call.attr)) return CUDA_ERROR_NOT_SUPPORTED;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  CUstreamAttrValue value{};
  static_assert(sizeof value == sizeof call.bytes);
  std::memcpy(&value, call.bytes.data(), sizeof value);
  return HEADRACE_DRIVER_CALL(session, cuStreamSetAttribute, stream,
                              static_cast<CUstreamAttrID>(call.attr), &value);
}

CUresult cuStreamGetAttribute(Session& session, const calls::CuStreamGetAttribute& call,
                              calls::CuStreamGetAttributeReply& reply) {
  CUstream stream = nullptr;
  if (!session.find(HandleKind::stream, call.hStream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (!carried(call.attr)) return CUDA_ERROR_NOT_SUPPORTED;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  CUstreamAttrValue value{};
  const CUresult result = HEADRACE_DRIVER_CALL(session, cuStreamGetAttribute, stream,
                                               static_cast<CUstreamAttrID>(call.attr), &value);
  std::memcpy(reply.bytes.data(), &value, sizeof value);
  return result;
}

}  // namespace headrace::worker::bodies
