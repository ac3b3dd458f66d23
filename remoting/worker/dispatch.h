// The seam between generated and written code of the worker.
//
// Generated (gen/worker_dispatch.cc): dispatch(), which decodes a call, and for each row one of
//   worker = "generated"  handles looked up through Session, the driver called, Session::answer()
//   worker = "custom"     calls  CUresult custom::cuXxx(Session&, const calls::CuXxx&)
//                         or     CUresult custom::cuXxx(Session&, const calls::CuXxx&,
//                                                       calls::CuXxxReply&)   where it has a reply
//                         and gives the result to Session::answer()
//   worker = "deferred"   calls  void deferred::cuXxx(Session&, const calls::CuXxx&, const Call&),
//                         which arranges the answer itself, now or later
// Spans and strings inside a decoded call live until the handler returns.
// gen/worker_custom.h declares them; they are written in remoting/worker/calls/, a file per family.
//
// A generated handler does, in this order, and answers at the first failure:
//   1. Session::device() for ordinals, Session::find() for handles that go in or end here
//      (0, 1 and 2 pass as streams), Session::check_new() for handles that are made;
//   2. the driver's function, through Session::driver();
//   3. on success Session::adopt() for made handles; Session::forget() for ended ones, whatever the
//      driver said.
#pragma once

#include <cstdint>
#include <span>

namespace headrace::worker {

class Session;

// The frame that a call came in: what its answer needs.
struct Call {
  std::uint16_t type = 0;    // of the frame, also of its reply
  std::uint32_t number = 0;  // 0: nothing is awaited; a failure becomes the deferred error (§7.4)
};

enum class Dispatched {
  done,       // answered, or will be
  unknown,    // no such call here: the caller answers CUDA_ERROR_NOT_SUPPORTED
  malformed,  // did not decode exactly: the connection ends
};

// Generated. Runs on the session's network thread, with the session's current context current.
Dispatched dispatch(Session& session, const Call& call, std::span<const std::uint8_t> payload);

// Generated: the driver function's name for a frame type, for logs; "?" where there is none.
const char* call_name(std::uint16_t type);

}  // namespace headrace::worker
