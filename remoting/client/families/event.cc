// Events: made and ended without waiting.
#include <memory>

#include "client/process.h"
#include "client/remote.h"
#include "gen/client_families.h"

namespace headrace::client::families {

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
  calls::CuEventDestroy_v2 call;
  call.hEvent = event->id;
  return send_in(event->context->id, call);
}

}  // namespace headrace::client::families
