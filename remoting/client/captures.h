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

// Work in a stream: `make` gives the node that it becomes when the stream captures.
template <typename Make>
Graphs::Verdict capture_work(const Context& context, std::uint64_t stream, const Make& make) {
  if (!graphs().watching()) return std::nullopt;
  return graphs().work(capture_stream(context, stream), make());
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
