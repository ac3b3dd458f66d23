// Ends launches whose time is over. Its thread exists only once a launch with a limit was made.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>

#include "softgpu/exec/job.h"

namespace headrace::softgpu::exec {

class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;

  // Watches `job` for the lifetime of the scope; the limit 0 watches nothing.
  class Scope {
   public:
    Scope(Watchdog& watchdog, Job& job, std::chrono::milliseconds limit);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Watchdog& watchdog_;
    std::multimap<Clock::time_point, Job*>::iterator entry_;
    bool watching_ = false;
  };

 private:
  static void* thread_main(void* watchdog);
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Clock::time_point, Job*> deadlines_;
  bool running_ = false;
};

}  // namespace headrace::softgpu::exec
