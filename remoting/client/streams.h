// Streams as the program names them, and the real ones behind them.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "client/state.h"

namespace headrace::client {

// The number that travels for a stream argument, in the current context. The thread's own stream is
// made on first use.
CUresult resolve_stream(CUstream stream, std::uint64_t& id);

// The context of a resolved stream; `current` for those of CUDA's own.
Context* context_of_stream(std::uint64_t id, Context* current);

// After a copy to the device that the program waited for, on stream `id`. CUDA's copy is done when
// the call returns, ours may be under way: streams that the legacy stream does not hold back are
// made to wait for it when they are next used, and a copy on a thread's own stream is waited for
// here.
CUresult settle_upload(Context& context, std::uint64_t id);

}  // namespace headrace::client
