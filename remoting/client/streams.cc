#include "client/streams.h"

#include <memory>
#include <mutex>

#include "client/copies.h"
#include "client/per_thread.h"
#include "client/process.h"
#include "client/remote.h"
#include "client/thread_state.h"

namespace headrace::client {
namespace {

CUresult own_stream(std::uint64_t& id) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  ThreadStream& stream = ThreadState::of_this_thread().streams[context];
  const unsigned life = context->life.load();
  if (stream.id == 0 || stream.life != life) {
    // Blocking, like the per-thread stream of CUDA: it synchronises with the legacy stream.
    calls::CuStreamCreate call;
    call.phStream = process().handles.make(HandleKind::stream);
    call.Flags = CU_STREAM_DEFAULT;
    if (const CUresult result = send_in(context->id, call); result != CUDA_SUCCESS) return result;
    stream = {call.phStream, life};
  }
  id = stream.id;
  return CUDA_SUCCESS;
}

// Makes a stream wait for the uploads that it has not waited for yet.
CUresult wait_for_uploads(Stream& stream) {
  Context& context = *stream.context;
  const std::uint64_t uploads = context.uploads.load();
  if (stream.seen_uploads.exchange(uploads) == uploads) return CUDA_SUCCESS;
  const std::lock_guard<std::mutex> lock(context.upload_mutex);
  if (context.upload_event == 0 || context.upload_event_life != context.life.load()) {
    calls::CuEventCreate create;
    create.phEvent = process().handles.make(HandleKind::event);
    create.Flags = CU_EVENT_DISABLE_TIMING;
    if (const CUresult bad = send_in(context.id, create); bad != CUDA_SUCCESS) return bad;
    context.upload_event = create.phEvent;
    context.upload_event_life = context.life.load();
  }
  calls::CuEventRecord record;
  record.hEvent = context.upload_event;
  record.hStream = 0;
  if (const CUresult bad = send_in(context.id, record); bad != CUDA_SUCCESS) return bad;
  calls::CuStreamWaitEvent wait;
  wait.hStream = stream.id;
  wait.hEvent = context.upload_event;
  return send_in(context.id, wait);
}

}  // namespace

CUresult settle_upload(Context& context, std::uint64_t id) {
  if (id != 0) return synchronise(context, id);
  context.uploads.fetch_add(1);
  return CUDA_SUCCESS;
}

CUresult resolve_stream(CUstream stream, std::uint64_t& id) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY) {
    id = 0;
    return CUDA_SUCCESS;
  }
  if (stream == CU_STREAM_PER_THREAD) return own_stream(id);
  id = reinterpret_cast<std::uint64_t>(stream);
  const std::shared_ptr<Stream> known = process().streams.find(id);
  if (known == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // Other streams wait for the legacy one anyway.
  return (known->flags & CU_STREAM_NON_BLOCKING) != 0 ? wait_for_uploads(*known) : CUDA_SUCCESS;
}

Context* context_of_stream(std::uint64_t id, Context* current) {
  if (id == 0) return current;
  const std::shared_ptr<Stream> stream = process().streams.find(id);
  return stream == nullptr ? current : stream->context;
}

ThreadState& ThreadState::of_this_thread() { return per_thread<ThreadState, ThreadState>(); }

ThreadState::~ThreadState() {
  // The thread ends; its work does not, so the streams are only given up.
  try {
    if (enter() != CUDA_SUCCESS) return;
    for (const auto& [context, stream] : streams) {
      if (!context->alive || context->life != stream.life) continue;
      calls::CuStreamDestroy_v2 call;
      call.hStream = stream.id;
      send_in(context->id, call);
    }
  } catch (...) {  // out of memory while a thread ends: the session's end will free them
  }
}

}  // namespace headrace::client
