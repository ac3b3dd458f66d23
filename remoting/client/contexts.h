// Life and death of contexts.
#pragma once

#include <cuda.h>

#include "client/state.h"

namespace headrace::client {

// The context of a handle; null when it was never one, or is destroyed. The primary context of a
// device is found also while nobody retains it.
Context* find_context(CUcontext handle);

// Forgets all that lived in a context: streams, events, code, memory. Page-locked memory that was
// allocated in it is released. Then runs what runtimes left to be run (export table c693336e), so
// no lock may be held.
void forget_contents(Context& context);

}  // namespace headrace::client
