// What capture (driverabi/graphs.h) makes of this library's calls.
#pragma once

#include "remoting/driverabi/graphs.h"
#include "remoting/softgpu/driver/runtime.h"

namespace headrace::softgpu {

using driverabi::Graphs;

Graphs& graphs();

inline driverabi::CaptureStream capture_stream(const Context& context, const Stream& stream) {
  return {stream.id, context.handle, stream.legacy, stream.blocking()};
}

// Work in a stream: `make` gives the node that it becomes when the stream captures.
template <typename Make>
Graphs::Verdict capture_work(const Context& context, const Stream& stream, const Make& make) {
  if (!graphs().watching()) return std::nullopt;
  return graphs().work(capture_stream(context, stream), make());
}

// What must not happen to a stream that captures.
inline Graphs::Verdict capture_forbids(const Context& context, const Stream& stream) {
  return graphs().watching() ? graphs().forbidden(capture_stream(context, stream)) : std::nullopt;
}

// Calls that may upset captures of this or other threads.
inline Graphs::Verdict capture_upset() {
  return graphs().watching() ? graphs().unsafe(Runtime::thread().capture_mode) : std::nullopt;
}

}  // namespace headrace::softgpu
