// Every other function of NVML: programs that look for it find it, and an answer that they know.
#include <atomic>
#include <string>

#include "remoting/softgpu/device/log.h"
#include "remoting/softgpu/nvml/answers.h"

namespace headrace::softgpu::nvml {
namespace {

// Each name is logged once.
Return refuse(const char* name, std::atomic<bool>& told) noexcept {
  return with_library([&] {
    if (!told.exchange(true)) log(std::string(name) + ": not supported");
    return kNotSupported;
  });
}

}  // namespace

// They look at no argument, so that one form serves all; weak, so that a body goes before.
#define HEADRACE_NVML_FUNCTION(name)                \
  NVML_EXPORT [[gnu::weak]] int name() {            \
    static constinit std::atomic<bool> told{false}; \
    return refuse(#name, told);                     \
  }
#include "remoting/driverabi/nvml_functions.inc"
#undef HEADRACE_NVML_FUNCTION

}  // namespace headrace::softgpu::nvml
