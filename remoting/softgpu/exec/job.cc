#include "softgpu/exec/job.h"

#include <algorithm>
#include <cstring>

#include "softgpu/exec/block_scheduler.h"
#include "softgpu/exec/faults.h"

namespace headrace::softgpu::exec {

namespace {
constexpr std::size_t kParamPadding = 16;
// Blocks are handed out in chunks: one atomic increment per block would keep two threads from
// being faster than one, and chunks that are too large would leave threads idle at the end.
constexpr std::uint64_t kChunksPerThread = 16;
constexpr std::uint64_t kLargestChunk = 64;
}  // namespace

Job::Job(const Launch& launch, unsigned threads) : launch_(launch), blocks_(launch.grid.count()) {
  params_.resize(std::max<std::size_t>(launch.params_bytes, launch.kernel->param_bytes) +
                 kParamPadding);
  if (launch.params_bytes != 0) std::memcpy(params_.data(), launch.params, launch.params_bytes);
  grain_ = std::min(blocks_ / (threads * kChunksPerThread) + 1, kLargestChunk);
  // All blocks of a cooperative grid take turns on one thread.
  const std::uint64_t chunks = launch.cooperative ? 1 : (blocks_ + grain_ - 1) / grain_;
  helpers_ = static_cast<unsigned>(std::min<std::uint64_t>(threads, chunks) - 1);
}

bool Job::take(std::uint64_t& first, std::uint64_t& last) {
  if (stop_.load(std::memory_order_relaxed)) return false;
  const std::uint64_t grain = launch_.cooperative ? blocks_ : grain_;
  first = next_.fetch_add(grain, std::memory_order_relaxed);
  if (first >= blocks_) return false;
  last = std::min(first + grain, blocks_);
  return true;
}

void Job::work() {
  ThreadState* thread = thread_state();
  if (thread == nullptr) {
    fail({.status = LaunchStatus::out_of_resources});
    return;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    participants_.push_back(thread);
  }
  run_blocks(*thread);
  {
    // From here on nobody kicks this thread for this job.
    std::lock_guard<std::mutex> lock(mutex_);
    std::erase(participants_, thread);
  }
  thread->trim();
}

void Job::run_blocks(ThreadState& thread) {
  FaultScope faults(thread);
  BlockScheduler scheduler(thread, launch_, params_.data(), stop_);
  const std::uint32_t resident =
      launch_.cooperative ? static_cast<std::uint32_t>(launch_.grid.count()) : 1;
  if (!faults.ok() || !scheduler.reserve(resident)) {
    fail({.status = LaunchStatus::out_of_resources});
    return;
  }
  std::uint64_t first = 0, last = 0;
  while (take(first, last)) {
    scheduler.run(first, last);
    if (thread.fault.status == LaunchStatus::ok) continue;
    fail({.status = thread.fault.status,
          .address = thread.fault.address,
          .block = scheduler.where(),
          .warp = scheduler.warp()});
    return;
  }
}

void Job::fail(const LaunchResult& result) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (result_.ok()) result_ = result;
  stop_.store(true, std::memory_order_release);
  for (const ThreadState* thread : participants_) kick(*thread);
}

}  // namespace headrace::softgpu::exec
