// What kernels print, kept until the program synchronises, as CUDA does.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>

#include "remoting/softgpu/exec/executor.h"

namespace headrace::softgpu {

class OutputBuffer final : public KernelOutput {
 public:
  explicit OutputBuffer(std::size_t limit) : limit_(limit) {}
  void print(std::string_view text) noexcept override;
  void assertion(std::string_view text) noexcept override;
  // Bytes of printf that are kept; what is oldest goes first.
  void set_limit(std::size_t bytes);
  // Writes printf to the program's stdout and assertions to its stderr.
  void flush() noexcept;

 private:
  std::mutex writing_;  // held over a flush: texts of two must not change places
  std::mutex mutex_;    // of the following
  std::deque<std::string> printed_;
  std::size_t printed_bytes_ = 0, limit_;
  std::string asserted_;
};

}  // namespace headrace::softgpu
