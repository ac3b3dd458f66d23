// What belongs to one thread of the program: its stack of current contexts and its per-thread
// streams.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "client/state.h"

namespace headrace::client {

struct ThreadStream {
  std::uint64_t id = 0;
  unsigned life = 0;  // of the context when it was made
};

class ThreadState {
 public:
  static ThreadState& of_this_thread();
  ~ThreadState();  // ends the thread's per-thread streams

  std::vector<Context*> contexts;
  std::unordered_map<Context*, ThreadStream> streams;
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
};

}  // namespace headrace::client
