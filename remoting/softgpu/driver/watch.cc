#include "remoting/softgpu/driver/watch.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>

namespace headrace::softgpu {
namespace {

using std::chrono::microseconds;

// A wait that ends soon is seen soon; one that lasts costs little.
constexpr microseconds kFirst{20}, kLongest{1000};
constexpr std::chrono::seconds kIdle{2};

}  // namespace

void Watch::add(std::function<bool()> over, std::function<void()> then) {
  if (over()) return then();
  std::lock_guard<std::mutex> guard(mutex_);
  added_.push_back({std::move(over), std::move(then)});
  if (!running_) running_ = start_thread_locked();
  wake_.notify_one();
}

bool Watch::start_thread_locked() {
  sigset_t all, before;  // signals are the application's
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  bool ok = pthread_create(&thread, &attributes, &Watch::thread_main, this) == 0;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return ok;
}

void* Watch::thread_main(void* watch) {
  pthread_setname_np(pthread_self(), "softgpu-watch");
  static_cast<Watch*>(watch)->loop();
  return nullptr;
}

void Watch::loop() {
  std::vector<Wait> waits;
  microseconds pause = kFirst;
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      auto more = [this] { return !added_.empty(); };
      if (!waits.empty()) {
        wake_.wait_for(lock, pause, more);
      } else if (!wake_.wait_for(lock, kIdle, more)) {
        running_ = false;
        return;
      }
      if (!added_.empty()) pause = kFirst;
      for (Wait& wait : added_) waits.push_back(std::move(wait));
      added_.clear();
    }
    std::size_t before = waits.size();
    std::erase_if(waits, [](Wait& wait) {
      if (!wait.over()) return false;
      wait.then();
      return true;
    });
    pause = waits.size() < before ? kFirst : std::min(pause * 2, kLongest);
  }
}

}  // namespace headrace::softgpu
