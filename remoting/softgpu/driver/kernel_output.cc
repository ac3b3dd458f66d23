#include "remoting/softgpu/driver/kernel_output.h"

#include <cstdio>
#include <exception>

namespace headrace::softgpu {

namespace {
constexpr std::size_t kMostAssertions = std::size_t{1} << 20;  // bytes
}

void OutputBuffer::print(std::string_view text) noexcept {
  try {
    std::lock_guard<std::mutex> lock(mutex_);
    printed_.emplace_back(text);
    printed_bytes_ += text.size();
    while (printed_bytes_ > limit_ && !printed_.empty()) {
      printed_bytes_ -= printed_.front().size();
      printed_.pop_front();
    }
  } catch (const std::exception&) {  // no memory: lost, as what is too old
  }
}

void OutputBuffer::assertion(std::string_view text) noexcept {
  try {
    std::lock_guard<std::mutex> lock(mutex_);
    if (asserted_.size() < kMostAssertions) asserted_ += text;
  } catch (const std::exception&) {
  }
}

void OutputBuffer::set_limit(std::size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  limit_ = bytes;
}

void OutputBuffer::flush() noexcept {
  std::lock_guard<std::mutex> order(writing_);
  std::deque<std::string> printed;
  std::string asserted;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    printed.swap(printed_);
    asserted.swap(asserted_);
    printed_bytes_ = 0;
  }
  if (!printed.empty()) {
    for (const std::string& text : printed) std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  if (!asserted.empty()) std::fwrite(asserted.data(), 1, asserted.size(), stderr);
}

}  // namespace headrace::softgpu
