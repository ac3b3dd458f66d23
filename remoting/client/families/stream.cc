// Streams: made and ended without waiting.
#include <algorithm>
#include <memory>

#include "client/captures.h"
#include "client/process.h"
#include "client/remote.h"
#include "client/streams.h"
#include "client/thread_state.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

bool is_special(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

CUresult keep_stream(Context& context, std::uint64_t id, unsigned flags, int priority,
                     CUstream* out) {
  const std::shared_ptr<Stream> stream = std::make_shared<Stream>();
  stream->id = id;
  stream->context = &context;
  stream->flags = flags;
  stream->priority = priority;
  process().streams.insert(id, stream);
  *out = reinterpret_cast<CUstream>(id);
  return CUDA_SUCCESS;
}

// A stream argument of a question: what is known of it. Null stays for CUDA's own streams, which
// belong to the current context.
CUresult find_stream(CUstream handle, std::shared_ptr<Stream>& stream, Context*& context) {
  if (is_special(handle)) return enter_context(context);
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  stream = process().streams.find(reinterpret_cast<std::uint64_t>(handle));
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  context = stream->context;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuStreamCreate(CUstream* out, unsigned int flags) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (out == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  calls::CuStreamCreate call;
  call.phStream = process().handles.make(HandleKind::stream);
  call.Flags = flags;
  if (const CUresult result = send_in(context->id, call); result != CUDA_SUCCESS) return result;
  return keep_stream(*context, call.phStream, flags, 0, out);
}

CUresult cuStreamCreateWithPriority(CUstream* out, unsigned int flags, int priority) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (out == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Out of range means the nearest end; the greatest priority is the lowest number.
  const Device& device = *context->device;
  const int clamped = std::max(device.priority_greatest, std::min(device.priority_least, priority));
  calls::CuStreamCreateWithPriority call;
  call.phStream = process().handles.make(HandleKind::stream);
  call.flags = flags;
  call.priority = clamped;
  if (const CUresult result = send_in(context->id, call); result != CUDA_SUCCESS) return result;
  return keep_stream(*context, call.phStream, flags, clamped, out);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  const std::shared_ptr<Stream> stream =
      is_special(handle) ? nullptr
                         : process().streams.take(reinterpret_cast<std::uint64_t>(handle));
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (graphs().watching()) graphs().stream_ends(capture_stream(*stream->context, stream->id));
  calls::CuStreamDestroy_v2 call;
  call.hStream = stream->id;
  return send_in(stream->context->id, call);
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  std::shared_ptr<Stream> stream;
  Context* context = nullptr;
  if (const CUresult bad = find_stream(handle, stream, context); bad != CUDA_SUCCESS) return bad;
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream == nullptr ? 0 : stream->priority;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int* flags) {
  std::shared_ptr<Stream> stream;
  Context* context = nullptr;
  if (const CUresult bad = find_stream(handle, stream, context); bad != CUDA_SUCCESS) return bad;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = stream == nullptr ? 0 : stream->flags;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  std::shared_ptr<Stream> stream;
  Context* context = nullptr;
  if (const CUresult bad = find_stream(handle, stream, context); bad != CUDA_SUCCESS) return bad;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (handle == CU_STREAM_PER_THREAD) {
    std::uint64_t own = 0;
    const CUresult result = resolve_stream(handle, own);
    if (result == CUDA_SUCCESS) *id = handle_serial(own);
    return result;
  }
  // Streams of programs have serials from 1, so the legacy streams of contexts go above all.
  *id = stream != nullptr ? handle_serial(stream->id) : (1ULL << 40) + handle_serial(context->id);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* out) {
  std::shared_ptr<Stream> stream;
  Context* context = nullptr;
  if (const CUresult bad = find_stream(handle, stream, context); bad != CUDA_SUCCESS) return bad;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = context->handle();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext* out, CUgreenCtx* green) {
  if (green != nullptr) *green = nullptr;
  return families::cuStreamGetCtx(handle, out);
}

CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx* green) {
  std::shared_ptr<Stream> stream;
  Context* context = nullptr;
  if (const CUresult bad = find_stream(handle, stream, context); bad != CUDA_SUCCESS) return bad;
  if (green == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *green = nullptr;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
  std::shared_ptr<Stream> stream;
  Context* context = nullptr;
  if (const CUresult bad = find_stream(handle, stream, context); bad != CUDA_SUCCESS) return bad;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
      *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::swap(*mode, ThreadState::of_this_thread().capture_mode);
  return CUDA_SUCCESS;
}

// ---------------------------------------------------------------- waiting

CUresult cuStreamSynchronize(CUstream stream) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  calls::CuStreamSynchronize call;
  if (const CUresult bad = resolve_stream(stream, call.hStream); bad != CUDA_SUCCESS) return bad;
  if (const Graphs::Verdict forbidden = capture_forbids(*context, call.hStream)) return *forbidden;
  calls::CuStreamSynchronize::Reply reply;
  return trip(call, reply);
}

CUresult cuStreamQuery(CUstream stream) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  calls::CuStreamQuery call;
  if (const CUresult bad = resolve_stream(stream, call.hStream); bad != CUDA_SUCCESS) return bad;
  if (const Graphs::Verdict forbidden = capture_forbids(*context, call.hStream)) return *forbidden;
  calls::CuStreamQuery::Reply reply;
  return trip(call, reply);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  calls::CuStreamWaitEvent call;
  if (const CUresult bad = resolve_stream(stream, call.hStream); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = to_wire(HandleKind::event, event, call.hEvent); bad != CUDA_SUCCESS) {
    return bad;
  }
  if (graphs().watching()) {
    if (const Graphs::Verdict captured =
            graphs().wait(capture_stream(*context, call.hStream), event, flags)) {
      return *captured;
    }
  }
  call.Flags = flags;
  return send(call);
}

}  // namespace headrace::client::families
