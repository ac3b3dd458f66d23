// A link in progress.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "remoting/softgpu/driver/jit_options.h"

namespace headrace::softgpu {

class LinkState {
 public:
  std::uint64_t handle = 0;
  std::mutex mutex;
  JitOptions options;
  std::vector<std::string> texts;
  std::string result;  // lives as long as the link, as cuLinkComplete promises
};

}  // namespace headrace::softgpu
