// What bodies of driver functions, generated and hand-written, use to reach the server.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "client/process.h"
#include "client/state.h"
#include "common/ids.h"
#include "gen/calls.h"

namespace headrace::client {

// Whether calls are possible at all: initialised, in this process, not lost.
CUresult enter();
// The calling thread's current context, which must be alive and without a sticky error.
CUresult enter_context(Context*& context);

// Checks a handle of the program and gives the number that travels. Streams are resolved: a
// per-thread one becomes the real stream of this thread.
CUresult check_handle(HandleKind kind, std::uint64_t handle, std::uint64_t& id);

template <typename Handle>
CUresult to_wire(HandleKind kind, Handle handle, std::uint64_t& id) {
  if constexpr (std::is_pointer_v<Handle>) {
    return check_handle(kind, reinterpret_cast<std::uint64_t>(handle), id);
  } else {
    return check_handle(kind, static_cast<std::uint64_t>(handle), id);
  }
}

CUresult to_wire_device(CUdevice device, std::int32_t& ordinal);

// What came back from a trip, before its errors are merged.
struct TripResult {
  CUresult result = CUDA_SUCCESS;    // of the call itself
  CUresult deferred = CUDA_SUCCESS;  // first error of calls that awaited no reply
  // What the program gets: no error is dropped, and the older one goes first.
  CUresult told() const { return deferred != CUDA_SUCCESS ? deferred : result; }
};

// Handle of the current context, 0 if none; for calls that name no context.
std::uint64_t current_context_id();

// Remembers an error that has destroyed a context.
TripResult note_reply(std::uint64_t context, const ReplyHead& head);
CUresult result_of(Connection::Sent sent);
// The thread's own buffer for out fields, so that a trip allocates nothing.
std::vector<std::uint8_t>& reply_buffer();

template <typename Call>
CUresult send_in(std::uint64_t context, const Call& call) {
  return result_of(process().connection->send(context, call));
}

// Calls that name what they act on, and work without a current context.
template <typename Call>
inline constexpr bool needs_context = !std::is_same_v<Call, calls::CuCtxSynchronize_v2> &&
                                      !std::is_same_v<Call, calls::CuMemPoolTrimTo> &&
                                      !std::is_same_v<Call, calls::CuKernelSetCacheConfig>;

template <typename Call>
CUresult context_for(std::uint64_t& id) {
  if constexpr (needs_context<Call>) {
    Context* context = nullptr;
    const CUresult state = enter_context(context);
    if (state == CUDA_SUCCESS) id = context->id;
    return state;
  } else {
    id = current_context_id();
    return CUDA_SUCCESS;
  }
}

template <typename Call>
CUresult send(const Call& call) {
  std::uint64_t context = 0;
  if (const CUresult state = context_for<Call>(context); state != CUDA_SUCCESS) return state;
  return send_in(context, call);
}

// Whether HEADRACE_LOG_TRIPS=1 asks that the log names each call that waits for the server.
bool trips_are_logged();

// Calls that wait for kernels, which may wait for the program's changes to shared host memory. (A
// failure to send these shows in the call itself.)
template <typename Call>
inline constexpr bool waits_for_kernels =
    std::is_same_v<Call, calls::CuStreamSynchronize> ||
    std::is_same_v<Call, calls::CuStreamQuery> || std::is_same_v<Call, calls::CuEventSynchronize> ||
    std::is_same_v<Call, calls::CuEventQuery> || std::is_same_v<Call, calls::CuCtxSynchronize> ||
    std::is_same_v<Call, calls::CuCtxSynchronize_v2>;

// `reply` may hold views into a buffer that the thread's next trip overwrites.
template <typename Call>
TripResult trip_with_sink(std::uint64_t context, const Call& call, typename Call::Reply& reply,
                          const Connection::Sink& sink) {
  if constexpr (waits_for_kernels<Call>) process().host_twins.push();
  std::vector<std::uint8_t>& fields = reply_buffer();
  ReplyHead head;
  if (trips_are_logged()) log_line("trip " + std::string(Call::kName));
  const Connection::Sent sent = process().connection->trip(context, call, sink, head, fields);
  process().output.write();
  if (sent != Connection::Sent::ok) return {result_of(sent), CUDA_SUCCESS};
  TripResult outcome = note_reply(context, head);
  if (outcome.result == CUDA_SUCCESS) {
    Reader reader(fields.data() + calls::ReplyHeader::size,
                  fields.size() - calls::ReplyHeader::size);
    if (!Call::Reply::decode(reader, reply)) {
      process().connection->break_off("the reply to " + std::string(Call::kName) +
                                      " does not decode");
      outcome.result = connection_lost_error;
    }
  }
  return outcome;
}

template <typename Call>
TripResult trip_in(std::uint64_t context, const Call& call, typename Call::Reply& reply,
                   std::span<std::uint8_t> exact = {}) {
  return trip_with_sink(context, call, reply, Connection::Sink{exact, nullptr, 0});
}

template <typename Call>
TripResult trip_growing(std::uint64_t context, const Call& call, typename Call::Reply& reply,
                        std::vector<std::uint8_t>& data, std::size_t limit) {
  return trip_with_sink(context, call, reply, Connection::Sink{{}, &data, limit});
}

template <typename Call>
CUresult trip(const Call& call, typename Call::Reply& reply) {
  std::uint64_t context = 0;
  if (const CUresult state = context_for<Call>(context); state != CUDA_SUCCESS) return state;
  return trip_in(context, call, reply).told();
}

// For calls whose arguments could be checked here (`checked`) nothing is awaited; for others the
// server's own check is, so that its refusal comes at the call.
template <typename Call>
CUresult send_or_ask(std::uint64_t context, const Call& call, bool checked) {
  if (checked) return send_in(context, call);
  typename Call::Reply reply;
  return trip_in(context, call, reply).told();
}

// Answers that depend on the arguments alone, kept by the bytes of the call.
bool find_cached(std::span<const std::uint8_t> key, std::vector<std::uint8_t>& fields);
void keep_cached(std::span<const std::uint8_t> key, std::span<const std::uint8_t> fields);

template <typename Call>
CUresult trip_cached(const Call& call, typename Call::Reply& reply) {
  Writer key;
  key.u16(Call::kType);
  key.u64(current_context_id());
  if (!call.encode(key)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::uint8_t> fields;
  if (find_cached(key.view(), fields)) {
    Reader reader(fields.data(), fields.size());
    if (Call::Reply::decode(reader, reply)) return CUDA_SUCCESS;
  }
  const CUresult result = trip(call, reply);
  if (result != CUDA_SUCCESS) return result;
  Writer encoded;
  if (reply.encode(encoded)) keep_cached(key.view(), encoded.view());
  return CUDA_SUCCESS;
}

}  // namespace headrace::client
