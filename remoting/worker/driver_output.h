// What the driver writes to this process's standard output and error: printf and assertions of
// kernels (PROTOCOL.md §7.10). Both descriptors lead to memory here, and what has come is sent on
// before the reply of the call that made the driver write it.
//
// Not pipes: a driver would wait in the middle of a synchronise for somebody to read them.
#pragma once

#include <cstdint>

#include "common/framing.h"

namespace headrace::worker {

// The descriptor of the journal, for lines about this worker: standard error until capturing
// begins, and what was standard error from then on.
int journal();

class DriverOutput {
 public:
  // Takes the descriptors 1 and 2 of the process, once. False: this system cannot.
  static bool capture();

  // Adds what has come since to `out`, or drops it.
  static void send(FrameWriter& out, bool wanted);
};

}  // namespace headrace::worker
