#include "worker/waiter_pool.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

namespace headrace::worker {

WaiterPool::WaiterPool() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

WaiterPool::~WaiterPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    queue_.clear();
  }
  changed_.notify_all();
  for (std::thread& one : threads_) one.join();
}

void WaiterPool::submit(Work work) {
  ++running_;
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
  if (idle_ < queue_.size() && threads_.size() < max_threads) {
    threads_.emplace_back([this] { loop(); });
  } else {
    changed_.notify_one();
  }
}

void WaiterPool::post(Completion completion) {
  const std::lock_guard lock(mutex_);
  ++posted_;
  add_completed_locked(std::move(completion));
}

void WaiterPool::add_completed_locked(Completion completion) {
  completed_.push_back(std::move(completion));
  any_completed_ = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(wake_.get(), &one, sizeof one);
}

void WaiterPool::run_completions() {
  if (!any_completed_.exchange(false)) return;
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof count);
  std::vector<Completion> ready;
  {
    const std::lock_guard lock(mutex_);
    ready.swap(completed_);
    running_ -= ready.size() - std::exchange(posted_, 0);
  }
  for (const Completion& one : ready) one();
}

void WaiterPool::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    --idle_;
    if (stopping_) return;
    const Work work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    Completion completion = work();
    lock.lock();
    add_completed_locked(std::move(completion));
  }
}

}  // namespace headrace::worker
