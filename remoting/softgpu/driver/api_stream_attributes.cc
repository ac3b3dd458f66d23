// Attributes of streams: the priority has an effect, hints about caches and waiting are remembered.
#include <cuda.h>

#include <algorithm>

#include "remoting/softgpu/driver/runtime.h"

namespace headrace::softgpu {
namespace {

constexpr int kGreatestPriority = -5;

}  // namespace

CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID which,
                              const CUstreamAttrValue* value) {
  return with_stream(handle, [&](Runtime&, ContextPtr& context, StreamPtr& stream) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> guard(context->settings_mutex);
    switch (which) {
      case CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        if (value->accessPolicyWindow.hitRatio < 0 || value->accessPolicyWindow.hitRatio > 1 ||
            value->accessPolicyWindow.missProp == CU_ACCESS_PROPERTY_PERSISTING) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        stream->access_window = value->accessPolicyWindow;
        return CUDA_SUCCESS;
      case CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        if (value->syncPolicy < CU_SYNC_POLICY_AUTO ||
            value->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        stream->sync_policy = value->syncPolicy;
        return CUDA_SUCCESS;
      case CU_STREAM_ATTRIBUTE_PRIORITY:
        stream->priority = std::clamp(value->priority, kGreatestPriority, 0);
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
  });
}

CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID which, CUstreamAttrValue* value) {
  return with_stream(handle, [&](Runtime&, ContextPtr& context, StreamPtr& stream) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> guard(context->settings_mutex);
    switch (which) {
      case CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        value->accessPolicyWindow = stream->access_window;
        return CUDA_SUCCESS;
      case CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        value->syncPolicy = stream->sync_policy;
        return CUDA_SUCCESS;
      case CU_STREAM_ATTRIBUTE_PRIORITY:
        value->priority = stream->priority;
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
  });
}

CUresult cuStreamCopyAttributes(CUstream to, CUstream from) {
  return with_stream(to, [&](Runtime& runtime, ContextPtr& context, StreamPtr& target) {
    StreamPtr source;
    ContextPtr owner;
    if (CUresult bad = find_stream(runtime, from, &source, &owner)) return bad;
    if (owner != context) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> guard(context->settings_mutex);
    target->access_window = source->access_window;
    target->sync_policy = source->sync_policy;
    target->priority = source->priority;
    return CUDA_SUCCESS;
  });
}

}  // namespace headrace::softgpu
