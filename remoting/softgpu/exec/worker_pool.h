// The threads that help the callers of run(). Started when first wanted, kept for ever, gone in
// a forked child.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>

#include "softgpu/exec/job.h"

namespace headrace::softgpu::exec {

class WorkerPool {
 public:
  explicit WorkerPool(unsigned helpers) : wanted_threads_(helpers) {}

  // Runs the job on this thread and on as many of the pool's as are free and of use.
  void execute(Job& job);

 private:
  struct Offer {
    Job* job;
    unsigned open;    // helpers that may still join
    unsigned inside;  // helpers in work()
  };
  void start_threads(unsigned count);
  static void* thread_main(void* pool);
  void serve();

  const unsigned wanted_threads_;
  std::mutex mutex_;
  std::condition_variable offered_, left_;
  std::deque<Offer*> offers_;
  unsigned threads_ = 0;
  bool failed_to_start_ = false;
};

}  // namespace headrace::softgpu::exec
