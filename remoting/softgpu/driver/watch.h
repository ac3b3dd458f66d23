// Waiting for values in memory, which nobody announces: one thread asks for all waits of the
// process, so that a wait costs no thread of its own and ends with what it waits for.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

namespace headrace::softgpu {

class Watch {
 public:
  // Never destroyed: its thread may run while the process exits.
  Watch() = default;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Calls `then` once `over` has said yes: at once, or later on the watch's thread.
  void add(std::function<bool()> over, std::function<void()> then);

 private:
  struct Wait {
    std::function<bool()> over;
    std::function<void()> then;
  };
  bool start_thread_locked();
  void loop();
  static void* thread_main(void* watch);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Wait> added_;  // not seen by the thread yet
  bool running_ = false;
};

}  // namespace headrace::softgpu
