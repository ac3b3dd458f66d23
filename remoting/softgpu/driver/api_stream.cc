// Streams: creation, waiting, queries, host functions.
#include <cuda.h>

#include <algorithm>

#include "remoting/softgpu/driver/capture.h"
#include "remoting/softgpu/driver/runtime.h"

namespace headrace::softgpu {
namespace {

constexpr int kGreatestPriority = -5;

CUresult create(CUstream* out, unsigned flags, int priority) {
  return with_context([&](Runtime& runtime, ContextPtr& context) {
    if (out == nullptr || (flags & ~CU_STREAM_NON_BLOCKING) != 0) return CUDA_ERROR_INVALID_VALUE;
    StreamPtr stream = context->create_stream(flags, std::clamp(priority, kGreatestPriority, 0));
    if (stream == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *out = to_handle<CUstream>(runtime.streams.add(stream));
    return CUDA_SUCCESS;
  });
}

// Runs application code: calls of ours are refused inside it, no lock of ours is held around it.
class CallbackScope {
 public:
  CallbackScope() { Runtime::thread().in_callback = true; }
  ~CallbackScope() { Runtime::thread().in_callback = false; }
};

}  // namespace

CUresult cuStreamCreate(CUstream* out, unsigned int flags) { return create(out, flags, 0); }
CUresult cuStreamCreateWithPriority(CUstream* out, unsigned int flags, int priority) {
  return create(out, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  return with_runtime([&](Runtime& runtime) {
    // Work that is in it still completes.
    StreamPtr stream = runtime.streams.remove(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (ContextPtr context = stream->context.lock()) {
      if (graphs().watching()) graphs().stream_ends(capture_stream(*context, *stream));
      context->destroy_stream(stream);
    }
    return CUDA_SUCCESS;
  });
}
CUresult cuStreamDestroy(CUstream handle) { return softgpu::cuStreamDestroy_v2(handle); }

CUresult cuStreamSynchronize(CUstream handle) {
  return with_stream(handle, [](Runtime&, ContextPtr& context, StreamPtr& stream) {
    if (Graphs::Verdict forbidden = capture_forbids(*context, *stream)) return *forbidden;
    context->wait(stream);
    return context->sticky();
  });
}

CUresult cuStreamQuery(CUstream handle) {
  return with_stream(handle, [](Runtime&, ContextPtr& context, StreamPtr& stream) {
    if (Graphs::Verdict forbidden = capture_forbids(*context, *stream)) return *forbidden;
    if (!context->idle(stream)) return CUDA_ERROR_NOT_READY;
    return context->sticky();
  });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags) {
  return with_stream(handle, [&](Runtime& runtime, ContextPtr& context, StreamPtr& stream) {
    EventPtr event = runtime.events.find(event_handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if ((flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (graphs().watching()) {
      if (Graphs::Verdict captured =
              graphs().wait(capture_stream(*context, *stream), event_handle, flags)) {
        return *captured;
      }
    }
    std::shared_ptr<Event::Record> record = event->current();
    if (record == nullptr || record->done()) return CUDA_SUCCESS;
    context->submit(stream, nullptr, true, record->operation);
    return CUDA_SUCCESS;
  });
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* user) {
  return with_stream(handle, [&](Runtime&, ContextPtr& context, StreamPtr& stream) {
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (Graphs::Verdict captured = capture_work(*context, *stream, [&] {
          return driverabi::HostNode{function, user};
        })) {
      return *captured;
    }
    context->submit(stream, [function, user] {
      CallbackScope scope;
      function(user);
      return CUDA_SUCCESS;
    });
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback function, void* user,
                             unsigned int flags) {
  return with_stream(handle, [&](Runtime&, ContextPtr& context, StreamPtr& stream) {
    if (function == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (Graphs::Verdict forbidden = capture_forbids(*context, *stream)) return *forbidden;
    std::weak_ptr<Context> weak = context;
    // Unlike a host function it is called after a failure too, and told of it.
    context->submit(
        stream,
        [function, user, handle, weak] {
          ContextPtr owner = weak.lock();
          CallbackScope scope;
          function(handle, owner != nullptr ? owner->sticky() : CUDA_ERROR_CONTEXT_IS_DESTROYED,
                   user);
          return CUDA_SUCCESS;
        },
        true);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int* flags) {
  return with_stream(handle, [&](Runtime&, ContextPtr&, StreamPtr& stream) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = stream->flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  return with_stream(handle, [&](Runtime&, ContextPtr&, StreamPtr& stream) {
    if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *priority = stream->priority;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  return with_stream(handle, [&](Runtime&, ContextPtr&, StreamPtr& stream) {
    if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *id = stream->id;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* out) {
  return with_stream(handle, [&](Runtime&, ContextPtr& context, StreamPtr&) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = to_handle<CUcontext>(context->handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext* out, CUgreenCtx* green) {
  if (green != nullptr) *green = nullptr;
  return softgpu::cuStreamGetCtx(handle, out);
}

CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx* out) {
  return with_stream(handle, [&](Runtime&, ContextPtr&, StreamPtr&) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = nullptr;  // no stream belongs to one
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* out) {
  return with_stream(handle, [&](Runtime&, ContextPtr& context, StreamPtr&) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = context->device().ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return with_runtime([&](Runtime&) {
    if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
        *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::swap(*mode, Runtime::thread().capture_mode);
    return CUDA_SUCCESS;
  });
}

}  // namespace headrace::softgpu
