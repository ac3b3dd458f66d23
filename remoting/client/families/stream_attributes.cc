// Attributes of streams: kept by the server's driver.
#include <cstring>
#include <memory>

#include "client/process.h"
#include "client/remote.h"
#include "client/streams.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

// The shadow's priority follows the driver's, which may have clamped it.
CUresult refresh_priority(CUstream handle) {
  const std::shared_ptr<Stream> stream =
      process().streams.find(reinterpret_cast<std::uint64_t>(handle));
  if (stream == nullptr) return CUDA_SUCCESS;
  CUstreamAttrValue value{};
  const CUresult result =
      families::cuStreamGetAttribute(handle, CU_STREAM_ATTRIBUTE_PRIORITY, &value);
  if (result == CUDA_SUCCESS) stream->priority = value.priority;
  return result;
}

}  // namespace

CUresult cuStreamSetAttribute(CUstream stream, CUstreamAttrID which,
                              const CUstreamAttrValue* value) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  calls::CuStreamSetAttribute call;
  if (const CUresult bad = resolve_stream(stream, call.hStream); bad != CUDA_SUCCESS) return bad;
  call.attr = which;
  static_assert(sizeof *value == sizeof call.bytes);
  std::memcpy(call.bytes.data(), value, sizeof *value);
  calls::CuStreamSetAttribute::Reply reply;
  const CUresult result = trip_in(context->id, call, reply).told();
  if (result != CUDA_SUCCESS || which != CU_STREAM_ATTRIBUTE_PRIORITY) return result;
  return refresh_priority(stream);
}

CUresult cuStreamGetAttribute(CUstream stream, CUstreamAttrID which, CUstreamAttrValue* value) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  calls::CuStreamGetAttribute call;
  if (const CUresult bad = resolve_stream(stream, call.hStream); bad != CUDA_SUCCESS) return bad;
  call.attr = which;
  calls::CuStreamGetAttribute::Reply reply;
  const CUresult result = trip_in(context->id, call, reply).told();
  if (result == CUDA_SUCCESS) std::memcpy(value, reply.bytes.data(), sizeof *value);
  return result;
}

CUresult cuStreamCopyAttributes(CUstream to, CUstream from) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  calls::CuStreamCopyAttributes call;
  if (const CUresult bad = resolve_stream(to, call.dstStream); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = resolve_stream(from, call.srcStream); bad != CUDA_SUCCESS) return bad;
  calls::CuStreamCopyAttributes::Reply reply;
  const CUresult result = trip_in(context->id, call, reply).told();
  return result == CUDA_SUCCESS ? refresh_priority(to) : result;
}

}  // namespace headrace::client::families
