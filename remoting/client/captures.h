// What capture (driverabi/graphs.h) makes of this library's calls. Graphs and captures are held
// here; the server sees the calls that a launch of a graph consists of.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "client/process.h"
#include "client/state.h"
#include "client/thread_state.h"
#include "driverabi/graphs.h"

namespace headrace::client {

using driverabi::Graphs;

Graphs& graphs();

// A resolved stream as capture sees it; `context` is the current one.
inline driverabi::CaptureStream capture_stream(const Context& context, std::uint64_t id) {
  if (id == 0) return {0, context.id, true, true};
  const std::shared_ptr<Stream> stream = process().streams.find(id);
  if (stream == nullptr) return {id, context.id, false, true};  // a thread's own
  return {id, stream->context->id, false, (stream->flags & CU_STREAM_NON_BLOCKING) == 0};
}

// Waits until the stream has room behind functions of the program that have not returned.
inline Graphs::Verdict room_for(const Context& context, std::uint64_t stream,
                                std::size_t bytes = 0) {
  Callbacks& callbacks = process().callbacks;
  if (!callbacks.any()) return std::nullopt;
  const bool blocking = capture_stream(context, stream).blocking;
  const CUresult full = callbacks.make_room(context, stream, blocking, bytes);
  return full == CUDA_SUCCESS ? std::nullopt : Graphs::Verdict(full);
}

// Work in a stream, which has room for it unless it captures: `make` gives the node that it then
// becomes. So many bytes of this process go with it.
template <typename Make>
Graphs::Verdict capture_work(const Context& context, std::uint64_t stream, const Make& make,
                             std::size_t bytes = 0) {
  if (graphs().watching()) {
    if (const Graphs::Verdict captured = graphs().work(capture_stream(context, stream), make())) {
      return captured;
    }
  }
  return room_for(context, stream, bytes);
}

// What must not happen to a stream that captures.
inline Graphs::Verdict capture_forbids(const Context& context, std::uint64_t stream) {
  return graphs().watching() ? graphs().forbidden(capture_stream(context, stream)) : std::nullopt;
}

// Calls that may upset captures of this or other threads.
inline Graphs::Verdict capture_upset() {
  return graphs().watching() ? graphs().unsafe(ThreadState::of_this_thread().capture_mode)
                             : std::nullopt;
}

// Waiting for a whole context.
inline Graphs::Verdict capture_forbids_waiting(std::uint64_t context) {
  return graphs().watching() ? graphs().context_waits(context) : std::nullopt;
}

}  // namespace headrace::client
