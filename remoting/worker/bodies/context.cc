// Contexts (apispec/context.toml): made and ended by the client's names for them.
#include <algorithm>

#include "worker/bodies/bodies.h"

namespace headrace::worker::bodies {
namespace {

// A query of so many streams still costs less than a hand-over to another thread.
constexpr std::size_t queried_inline = 16;
// What kernels may leave behind between two synchronising calls (PROTOCOL.md §7.10).
constexpr std::uint64_t most_printed = 32 << 20;

std::optional<CUresult> synchronize(Session& session, const Waiting& waiting,
                                    const SessionContext& context) {
  const DriverTable& driver = session.driver();
  CUresult state = driver.cuCtxSetCurrent(context.context);
  session.current_changed();
  if (state != CUDA_SUCCESS) return state;
  const std::vector<CUstream> streams = session.streams_of(context.handle);
  state = streams.size() > queried_inline || !session.all_ended_are_done(context.handle)
              ? CUDA_ERROR_NOT_READY
              : session.marks().state(context.handle, nullptr);
  for (std::size_t i = 0; state == CUDA_SUCCESS && i < streams.size(); ++i) {
    state = driver.cuStreamQuery(streams[i]);
  }
  if (state != CUDA_ERROR_NOT_READY) return state;
  session.pool().submit(
      [&session, waiting, native = context.context, handle = context.handle,
       ended = session.ended_streams(context.handle)]() -> WaiterPool::Completion {
        CUresult result = session.driver().cuCtxSetCurrent(native);
        if (result == CUDA_SUCCESS) result = session.driver().cuCtxSynchronize();
        return [&session, waiting, handle, ended, result] {
          if (result == CUDA_SUCCESS) session.ended_are_done(handle, ended);
          session.answer(waiting, result);
        };
      });
  return std::nullopt;
}

}  // namespace

// Room for printf and malloc of kernels is memory of the device. A driver may give less than is
// wanted, as cuCtxGetLimit then says.
CUresult cuCtxSetLimit(Session& session, const calls::CuCtxSetLimit& call) {
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  if (session.current().handle == 0) return CUDA_ERROR_INVALID_CONTEXT;
  const DriverTable& driver = session.driver();
  const CUlimit limit = static_cast<CUlimit>(call.limit);
  if (limit != CU_LIMIT_PRINTF_FIFO_SIZE && limit != CU_LIMIT_MALLOC_HEAP_SIZE) {
    return driver.cuCtxSetLimit(limit, call.value);
  }
  const std::uint64_t wanted = limit == CU_LIMIT_PRINTF_FIFO_SIZE
                                   ? std::min<std::uint64_t>(call.value, most_printed)
                                   : call.value;
  std::size_t now = 0;
  if (CUresult result = driver.cuCtxGetLimit(&now, limit); result != CUDA_SUCCESS) return result;
  if (!session.charge_limit(limit, now, wanted)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = driver.cuCtxSetLimit(limit, wanted);
  if (result != CUDA_SUCCESS) session.charge_limit(limit, now, now);
  return result;
}

CUresult cuDevicePrimaryCtxRetain(Session& session, const calls::CuDevicePrimaryCtxRetain& call) {
  const SessionDevice* device = session.device_at(call.dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const unsigned index = static_cast<unsigned>(call.dev);
  if (const SessionContext* known = session.find_context(call.pctx)) {
    return known->primary && known->device == index ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  }
  SessionContext context{call.pctx, nullptr, index, /*primary=*/true};
  CUresult result = session.driver().cuDevicePrimaryCtxRetain(&context.context, device->device);
  if (result != CUDA_SUCCESS) return result;
  result = session.adopt_context(context);
  if (result != CUDA_SUCCESS) session.driver().cuDevicePrimaryCtxRelease_v2(device->device);
  return result;
}

CUresult cuDevicePrimaryCtxRelease_v2(Session& session,
                                      const calls::CuDevicePrimaryCtxRelease_v2& call) {
  const SessionDevice* device = session.device_at(call.dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const std::vector<SessionContext> contexts =
      session.primary_contexts(static_cast<unsigned>(call.dev));
  if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult result = CUDA_SUCCESS;
  for (const SessionContext& one : contexts) {
    result = session.driver().cuDevicePrimaryCtxRelease_v2(device->device);
    session.drop_context(one.handle);
  }
  return result;
}

CUresult cuDevicePrimaryCtxReset_v2(Session& session,
                                    const calls::CuDevicePrimaryCtxReset_v2& call) {
  const SessionDevice* device = session.device_at(call.dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const CUresult result = session.driver().cuDevicePrimaryCtxReset_v2(device->device);
  // The client's name for it stays: it stands for the device's primary context, whichever that is.
  for (SessionContext one : session.primary_contexts(static_cast<unsigned>(call.dev))) {
    session.drop_context(one.handle);
    session.driver().cuDevicePrimaryCtxRelease_v2(device->device);
    if (session.driver().cuDevicePrimaryCtxRetain(&one.context, device->device) == CUDA_SUCCESS) {
      session.adopt_context(one);
    }
  }
  return result;
}

CUresult cuCtxCreate_v4(Session& session, const calls::CuCtxCreate_v4& call) {
  const SessionDevice* device = session.device_at(call.dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const DriverTable& driver = session.driver();
  SessionContext context{call.pctx, nullptr, static_cast<unsigned>(call.dev), /*primary=*/false};
  CUresult result =
      driver.cuCtxCreate_v4 != nullptr
          ? driver.cuCtxCreate_v4(&context.context, nullptr, call.flags, device->device)
          : HEADRACE_DRIVER_CALL(session, cuCtxCreate_v2, &context.context, call.flags,
                                 device->device);
  if (result != CUDA_SUCCESS) return result;
  // Creating one pushes it, too; which is current is decided by SetContext alone.
  CUcontext popped = nullptr;
  driver.cuCtxPopCurrent_v2(&popped);
  session.current_changed();
  result = session.adopt_context(context);
  if (result != CUDA_SUCCESS) driver.cuCtxDestroy_v2(context.context);
  return result;
}

CUresult cuCtxDestroy_v2(Session& session, const calls::CuCtxDestroy_v2& call) {
  const SessionContext* found = session.find_context(call.ctx);
  if (found == nullptr || found->primary) return CUDA_ERROR_INVALID_CONTEXT;
  const CUcontext context = found->context;
  session.drop_context(call.ctx);
  return session.driver().cuCtxDestroy_v2(context);
}

std::optional<CUresult> cuCtxSynchronize(Session& session, std::uint32_t number,
                                         const calls::CuCtxSynchronize&) {
  if (session.current().handle == 0) return CUDA_ERROR_INVALID_CONTEXT;
  return synchronize(session, {calls::CuCtxSynchronize::kType, number}, session.current());
}

std::optional<CUresult> cuCtxSynchronize_v2(Session& session, std::uint32_t number,
                                            const calls::CuCtxSynchronize_v2& call) {
  const SessionContext* context = session.find_context(call.ctx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return synchronize(session, {calls::CuCtxSynchronize_v2::kType, number}, *context);
}

}  // namespace headrace::worker::bodies
