#include "client/kernel_output.h"

#include <cstdio>
#include <utility>

namespace headrace::client {

void KernelOutput::keep(protocol::Output&& output) {
  const std::lock_guard<std::mutex> lock(mutex_);
  kept_.push_back(std::move(output));
  any_.store(true, std::memory_order_release);
}

void KernelOutput::write() {
  if (!any_.load(std::memory_order_acquire)) return;
  const std::lock_guard<std::mutex> order(writing_);
  std::vector<protocol::Output> taken;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    taken.swap(kept_);
  }
  bool printed = false;
  for (const protocol::Output& one : taken) {
    printed = printed || one.stream == 1;
    std::fwrite(one.data.data(), 1, one.data.size(), one.stream == 1 ? stdout : stderr);
  }
  if (printed) std::fflush(stdout);
  // Only now: whose call has just returned must not go on before its text is out.
  const std::lock_guard<std::mutex> lock(mutex_);
  if (kept_.empty()) any_.store(false, std::memory_order_release);
}

}  // namespace headrace::client
