// One launch in progress: its blocks are handed out in order, its first failure is kept.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "softgpu/exec/executor.h"
#include "softgpu/exec/thread_state.h"

namespace headrace::softgpu::exec {

class Job {
 public:
  Job(const Launch& launch, unsigned threads);

  // Takes part until no block is left or the job has been stopped. Called by the thread of run()
  // and by threads of the pool.
  void work();

  // Ends the job with `result`, unless it has failed before, and drops what its threads run.
  void fail(const LaunchResult& result);

  // Threads that can find work beside the caller's.
  unsigned helpers() const { return helpers_; }
  // After the last thread has left work().
  const LaunchResult& result() const { return result_; }

 private:
  bool take(std::uint64_t& first, std::uint64_t& last);
  void run_blocks(ThreadState& thread);

  const Launch& launch_;
  std::vector<std::uint8_t> params_;
  std::uint64_t blocks_ = 0;
  std::uint64_t grain_ = 1;
  unsigned helpers_ = 0;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<bool> stop_{false};

  std::mutex mutex_;  // of the following
  std::vector<const ThreadState*> participants_;
  LaunchResult result_;
};

}  // namespace headrace::softgpu::exec
