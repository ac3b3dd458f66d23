// Every other function of NVML: there, so that programs find it, and with an answer that they know.
// Sensors, clocks, modes and links belong to the whole GPU, which is the administrator's.
#include <atomic>

#include "client/nvml/answers.h"

namespace headrace::client::nvml {
namespace {

// Each name is logged once.
Return refuse(const char* name, std::atomic<bool>& told) {
  if (!initialised()) return uninitialized;
  return guarded([&] {
    if (!told.exchange(true)) log_line(std::string(name) + ": not supported");
    return not_supported;
  });
}

}  // namespace

// They look at no argument, so that one form serves all.
#define HEADRACE_UNSUPPORTED(name)                  \
  HEADRACE_NVML int name() {                        \
    static constinit std::atomic<bool> told{false}; \
    return refuse(#name, told);                     \
  }
#include "client/nvml/unsupported.inc"
#undef HEADRACE_UNSUPPORTED

}  // namespace headrace::client::nvml
