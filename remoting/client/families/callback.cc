// Functions of the program in streams: registered here, run when the server says that their turn
// has come (callbacks.h).
#include "client/callbacks.h"
#include "client/captures.h"
#include "client/process.h"
#include "client/remote.h"
#include "client/streams.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

template <typename Call>
CUresult enqueue(const Context& context, std::uint64_t stream, Callbacks::Function function) {
  if (!process().connection->has_feature(feature_callbacks)) {
    log_line("the server does not know functions in streams: upgrade the appliance");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  function.context = context.id;
  function.stream_id = stream;
  function.blocking = capture_stream(context, stream).blocking;
  Call call;
  call.hStream = stream;
  call.number = process().callbacks.add(function);
  if (call.number == 0) return CUDA_ERROR_OPERATING_SYSTEM;
  const CUresult result = send_in(context.id, call);
  if (result != CUDA_SUCCESS) process().callbacks.withdraw(call.number);
  return result;
}

}  // namespace

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t id = 0;
  if (const CUresult bad = resolve_stream(stream, id); bad != CUDA_SUCCESS) return bad;
  if (const Graphs::Verdict captured = capture_work(*context, id, [&] {
        return driverabi::HostNode{function, data};
      })) {
    return *captured;
  }
  Callbacks::Function entry;
  entry.host = function;
  entry.data = data;
  return enqueue<calls::CuLaunchHostFunc>(*context, id, entry);
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* data,
                             unsigned int flags) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t id = 0;
  if (const CUresult bad = resolve_stream(stream, id); bad != CUDA_SUCCESS) return bad;
  if (const Graphs::Verdict forbidden = capture_forbids(*context, id)) return *forbidden;
  if (const Graphs::Verdict full = room_for(*context, id)) return *full;
  Callbacks::Function entry;
  entry.callback = callback;
  entry.stream = stream;
  entry.data = data;
  return enqueue<calls::CuStreamAddCallback>(*context, id, entry);
}

}  // namespace headrace::client::families
