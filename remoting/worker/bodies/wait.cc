// Waits (apispec/stream.toml, event.toml): answered by completion, while later frames go on.
#include "worker/bodies/bodies.h"

namespace headrace::worker::bodies {

std::optional<CUresult> cuStreamSynchronize(Session& session, std::uint32_t number,
                                            const calls::CuStreamSynchronize& call) {
  CUstream stream = nullptr;
  if (!session.find(HandleKind::stream, call.hStream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  const SessionContext& context = session.current();
  const CUresult state = session.marks().state(context.handle, stream);
  if (state != CUDA_ERROR_NOT_READY) return state;
  CUevent mark = nullptr;
  if (CUresult result = session.marks().record(context.handle, stream, mark);
      result != CUDA_SUCCESS) {
    return result;
  }
  const Waiting waiting{calls::CuStreamSynchronize::kType, number};
  session.pool().submit([&session, waiting, mark, native = context.context, handle = context.handle,
                         life = session.life(context.handle)]() -> WaiterPool::Completion {
    session.driver().cuCtxSetCurrent(native);
    const CUresult result = session.driver().cuEventSynchronize(mark);
    return [&session, waiting, mark, handle, life, result] {
      if (session.life(handle) == life) session.marks().recycle(handle, mark);
      session.answer(waiting, result);
    };
  });
  return std::nullopt;
}

std::optional<CUresult> cuEventSynchronize(Session& session, std::uint32_t number,
                                           const calls::CuEventSynchronize& call) {
  CUevent event = nullptr;
  if (!session.find(HandleKind::event, call.hEvent, event)) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  const CUresult state = session.driver().cuEventQuery(event);
  if (state != CUDA_ERROR_NOT_READY) return state;
  const Waiting waiting{calls::CuEventSynchronize::kType, number};
  session.pool().submit(
      [&session, waiting, event, native = session.current().context]() -> WaiterPool::Completion {
        session.driver().cuCtxSetCurrent(native);
        const CUresult result = session.driver().cuEventSynchronize(event);
        return [&session, waiting, result] { session.answer(waiting, result); };
      });
  return std::nullopt;
}

}  // namespace headrace::worker::bodies
