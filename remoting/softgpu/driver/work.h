// Work of all streams: a graph of operations, run by a pool of threads that grows as needed.
//
// Every operation knows how many others it waits for; whoever finishes last starts it. So a stream
// is nothing but "the last operation given to it", an event "the operation that was last when it
// was recorded", and all of CUDA's implicit ordering is expressed as edges at the time of the call.
// Threads are added while work is ready and nobody is idle, because a host function may wait for
// another stream's; idle ones end after a while.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace headrace::softgpu {

class Engine;

class Operation {
 public:
  using Body = std::function<void()>;

  Operation(Body body, int priority, std::uint64_t held)
      : body_(std::move(body)), priority_(priority), held_(held) {}
  bool done() const { return done_.load(std::memory_order_acquire) != 0; }
  void wait() const {
    while (done_.load(std::memory_order_acquire) == 0) done_.wait(0, std::memory_order_acquire);
  }

 private:
  friend class Engine;
  Body body_;
  const int priority_;  // lower runs first, as CUDA counts
  const std::uint64_t held_;
  std::atomic<std::uint32_t> done_{0};
  // Guarded by the engine's mutex.
  std::uint32_t waits_ = 0;
  std::vector<std::shared_ptr<Operation>> next_;
};

using OperationPtr = std::shared_ptr<Operation>;

class Engine {
 public:
  // Never destroyed: threads may run while the process exits.
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Null entries and finished operations in `after` are fine. `held`: bytes that the body keeps.
  OperationPtr submit(Operation::Body body, int priority, const std::vector<OperationPtr>& after,
                      std::uint64_t held = 0);
  // Waits while so much work is under way that more would only fill memory, as a driver does when
  // its queue is full. Not to be called with a lock held.
  void wait_for_room();
  // An operation without work that ends once it is opened: the end of something that is waited for
  // outside the graph, on no thread of ours.
  OperationPtr make_gate(int priority);
  void open(const OperationPtr& gate);

 private:
  void push_ready_locked(OperationPtr operation);
  OperationPtr pop_ready_locked();
  OperationPtr finish(const OperationPtr& operation);
  bool start_thread_locked();
  void worker();
  static void* thread_main(void* engine);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable room_;
  std::size_t under_way_ = 0;
  std::uint64_t held_ = 0;
  std::map<int, std::deque<OperationPtr>> ready_;  // by priority
  std::size_t ready_count_ = 0;
  unsigned threads_ = 0, idle_ = 0;
};

}  // namespace headrace::softgpu
