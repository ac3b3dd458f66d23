// Threads for what may take long: waiting for the device, compiling, linking. The network thread
// never does these. Work runs on a pool thread and returns what is left to do on the network
// thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "common/unique_fd.h"

namespace headrace::worker {

class WaiterPool {
 public:
  using Completion = std::function<void()>;
  using Work = std::function<Completion()>;

  WaiterPool();
  // Waits for running work; a session that must not wait so long ends its process instead.
  ~WaiterPool();
  WaiterPool(const WaiterPool&) = delete;
  WaiterPool& operator=(const WaiterPool&) = delete;

  void submit(Work work);
  // From any thread: something to do on the network thread.
  void post(Completion completion);

  // Readable when completions are there.
  int fd() const { return wake_.get(); }
  // Runs them, if there are any, on the calling (network) thread.
  void run_completions();
  std::size_t running() const { return running_; }  // submitted and not yet completed

 private:
  // Each waiting call occupies a thread. More than this many at once queue up.
  static constexpr std::size_t max_threads = 256;
  void loop();
  void add_completed_locked(Completion completion);

  UniqueFd wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  std::vector<Completion> completed_;
  std::vector<std::thread> threads_;
  std::size_t idle_ = 0;
  std::size_t posted_ = 0;  // of completed_, those that post() left there
  bool stopping_ = false;
  std::size_t running_ = 0;  // network thread only
  std::atomic<bool> any_completed_{false};
};

}  // namespace headrace::worker
