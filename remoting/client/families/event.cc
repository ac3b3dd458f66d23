// Events: made and ended without waiting.
#include <memory>

#include "client/captures.h"
#include "client/process.h"
#include "client/remote.h"
#include "client/streams.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

template <typename Call>
CUresult record(CUevent event, CUstream stream, unsigned flags, Call& call) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  const std::shared_ptr<Event> known =
      process().events.find(reinterpret_cast<std::uint64_t>(event));
  if (known == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  call.hEvent = known->id;
  if (const CUresult bad = resolve_stream(stream, call.hStream); bad != CUDA_SUCCESS) return bad;
  if (known->context != context_of_stream(call.hStream, context)) return CUDA_ERROR_INVALID_HANDLE;
  if ((flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (graphs().watching()) {
    if (const Graphs::Verdict captured =
            graphs().record(capture_stream(*context, call.hStream), event, flags)) {
      return *captured;
    }
  }
  return send(call);
}

template <typename Call>
CUresult ask(CUevent event, Call& call) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (const CUresult bad = to_wire(HandleKind::event, event, call.hEvent); bad != CUDA_SUCCESS) {
    return bad;
  }
  if (graphs().watching()) {
    if (const Graphs::Verdict captured = graphs().event_asked(event)) return *captured;
  }
  typename Call::Reply reply;
  return trip(call, reply);
}

}  // namespace

CUresult cuEventCreate(CUevent* out, unsigned int flags) {
  constexpr unsigned known =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (out == nullptr || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  calls::CuEventCreate call;
  call.phEvent = process().handles.make(HandleKind::event);
  call.Flags = flags;
  if (const CUresult result = send_in(context->id, call); result != CUDA_SUCCESS) return result;
  const std::shared_ptr<Event> event = std::make_shared<Event>();
  event->id = call.phEvent;
  event->context = context;
  event->flags = flags;
  process().events.insert(event->id, event);
  *out = reinterpret_cast<CUevent>(event->id);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  const std::shared_ptr<Event> event =
      process().events.take(reinterpret_cast<std::uint64_t>(handle));
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (graphs().watching()) graphs().event_ends(handle);
  calls::CuEventDestroy_v2 call;
  call.hEvent = event->id;
  return send_in(event->context->id, call);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  calls::CuEventRecord call;
  return record(event, stream, CU_EVENT_RECORD_DEFAULT, call);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
  calls::CuEventRecordWithFlags call;
  call.flags = flags;
  return record(event, stream, flags, call);
}

CUresult cuEventQuery(CUevent event) {
  if (const Graphs::Verdict upset = capture_upset()) return *upset;
  calls::CuEventQuery call;
  return ask(event, call);
}

CUresult cuEventSynchronize(CUevent event) {
  calls::CuEventSynchronize call;
  return ask(event, call);
}

}  // namespace headrace::client::families
