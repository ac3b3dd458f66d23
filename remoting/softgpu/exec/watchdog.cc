#include "softgpu/exec/watchdog.h"

#include <pthread.h>

#include <csignal>

namespace headrace::softgpu::exec {

Watchdog::Scope::Scope(Watchdog& watchdog, Job& job, std::chrono::milliseconds limit)
    : watchdog_(watchdog) {
  if (limit.count() <= 0) return;
  std::lock_guard<std::mutex> lock(watchdog_.mutex_);
  if (!watchdog_.running_) {
    sigset_t all, previous;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous);
    pthread_t thread;
    const int failed = pthread_create(&thread, nullptr, &Watchdog::thread_main, &watchdog_);
    pthread_sigmask(SIG_SETMASK, &previous, nullptr);
    if (failed != 0) return;  // the launch runs without its limit
    pthread_detach(thread);
    watchdog_.running_ = true;
  }
  entry_ = watchdog_.deadlines_.emplace(Clock::now() + limit, &job);
  watching_ = true;
  watchdog_.changed_.notify_one();
}

Watchdog::Scope::~Scope() {
  if (!watching_) return;
  std::lock_guard<std::mutex> lock(watchdog_.mutex_);
  watchdog_.deadlines_.erase(entry_);
}

void* Watchdog::thread_main(void* watchdog) {
  pthread_setname_np(pthread_self(), "softgpu-watch");
  static_cast<Watchdog*>(watchdog)->serve();
  return nullptr;
}

void Watchdog::serve() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    if (deadlines_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const Clock::time_point first = deadlines_.begin()->first;
    const Clock::time_point now = Clock::now();
    if (now < first) {
      changed_.wait_until(lock, first);
      continue;
    }
    // Under the lock, so the job cannot end meanwhile. Its entry stays until its scope ends:
    // it moves to the far end of the list.
    Job* job = deadlines_.begin()->second;
    job->fail({.status = LaunchStatus::timeout});
    auto node = deadlines_.extract(deadlines_.begin());
    node.key() = Clock::time_point::max();
    deadlines_.insert(std::move(node));
    if (deadlines_.begin()->first == Clock::time_point::max()) changed_.wait(lock);
  }
}

}  // namespace headrace::softgpu::exec
