#include "client/streams.h"

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

}  // namespace

CUresult resolve_stream(CUstream stream, std::uint64_t& id) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY) {
    id = 0;
    return CUDA_SUCCESS;
  }
  if (stream == CU_STREAM_PER_THREAD) return own_stream(id);
  id = reinterpret_cast<std::uint64_t>(stream);
  return process().streams.contains(id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

ThreadState& ThreadState::of_this_thread() { return per_thread<ThreadState>(); }

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
