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

// They look at no argument, so that one form serves all; weak, so that a body goes before.
#define HEADRACE_NVML_FUNCTION(name)                \
  HEADRACE_NVML [[gnu::weak]] int name() {          \
    static constinit std::atomic<bool> told{false}; \
    return refuse(#name, told);                     \
  }
#include "driverabi/nvml_functions.inc"
#undef HEADRACE_NVML_FUNCTION

}  // namespace headrace::client::nvml
