// What the hand-written call bodies share. The bodies are declared in gen/worker_dispatch.h; there
// is a file here for each family of apispec that has any.
#pragma once

#include <optional>

#include "gen/worker_dispatch.h"
#include "worker/session.h"

namespace headrace::worker::bodies {

// The driver has every function that this release knows, or an older one lacks some.
#define HEADRACE_DRIVER_CALL(session, function, ...)                 \
  ((session).driver().function == nullptr ? CUDA_ERROR_NOT_SUPPORTED \
                                          : (session).driver().function(__VA_ARGS__))

}  // namespace headrace::worker::bodies
