// Streams as the program names them, and the real ones behind them.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "client/state.h"

namespace headrace::client {

// The number that travels for a stream argument, in the current context. The thread's own stream is
// made on first use.
CUresult resolve_stream(CUstream stream, std::uint64_t& id);

}  // namespace headrace::client
