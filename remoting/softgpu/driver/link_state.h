// A link in progress, and the joining of PTX texts.
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

// One text that holds all: the head of the first with the highest .version, and no declaration of
// something that one of them defines.
std::string merge_ptx(const std::vector<std::string>& texts);

}  // namespace headrace::softgpu
