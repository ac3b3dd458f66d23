// Functions of the program that the server has us run when their turn in a stream has come
// (PROTOCOL.md §7.9), on threads of this library. No lock of ours is held while one runs.
#pragma once

#include <cuda.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>

#include "gen/messages.h"

namespace headrace::client {

class Connection;
struct Context;

class Callbacks {
 public:
  struct Function {
    CUhostFn host = nullptr;  // one of these two
    CUstreamCallback callback = nullptr;
    CUstream stream = nullptr;  // as the program named it
    void* data = nullptr;
    std::uint64_t context = 0;
    std::uint64_t stream_id = 0;
    bool blocking = false;  // its stream and the legacy one wait for each other
  };

  // The number that travels for a function; 0: there is no thread to run it. It is added before its
  // frame goes, because the server may be quick; one that could not be sent is withdrawn.
  std::uint64_t add(const Function& function);
  void withdraw(std::uint64_t number);
  // From whichever thread reads the connection.
  void arrive(const protocol::CallbackRun& run);
  // Functions in a context that has ended do not run any more.
  void drop_context(std::uint64_t context);
  void connection_lost();

  // Before more is put into a stream: waits while too much waits there for a function that has not
  // returned (§7.9), because drivers keep only so much. CUDA's own calls block then, too.
  CUresult make_room(const Context& context, std::uint64_t stream, bool blocking,
                     std::size_t bytes);
  // Whether there is anything to make room for: a call that costs nothing.
  bool any() const { return open_.load(std::memory_order_relaxed) != 0; }

  // Whether the calling thread is inside such a function, where CUDA permits no calls.
  static bool running_here();

 private:
  struct Open {
    Function function;
    std::uint64_t place = 0;  // what had been put into its stream before it
    bool arrived = false;
  };

  bool start_threads_locked();
  static void* read(void* callbacks);
  // What a thread that runs functions does, around them.
  struct Turn {
    std::uint64_t number = 0;
    CUresult result = CUDA_SUCCESS;
    Function function;
  };
  bool next_turn(Turn& turn);
  void end_turn(const Turn& turn);
  static void* run(void* callbacks);
  void forget_locked(std::uint64_t number);
  // Whether a stream waits for the function.
  static bool holds(const Function& function, std::uint64_t context, std::uint64_t stream,
                    bool blocking);
  bool is_held_locked(std::uint64_t context, std::uint64_t stream, bool blocking) const;
  std::uint64_t weight_behind_locked(std::uint64_t context, std::uint64_t stream,
                                     bool blocking) const;

  std::mutex mutex_;
  std::condition_variable arrived_;   // something is in ready_
  std::condition_variable expected_;  // something was added
  std::condition_variable returned_;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, Open> functions_;  // that have not returned, by number
  std::deque<protocol::CallbackRun> ready_;
  // By stream: the weight of what was put into it since functions have been open.
  std::unordered_map<std::uint64_t, std::uint64_t> put_;
  unsigned runners_ = 0;
  unsigned idle_ = 0;
  bool reading_ = false;
  std::atomic<std::size_t> open_{0};     // functions_.size()
  std::atomic<std::size_t> awaited_{0};  // of them, those that have not arrived
};

}  // namespace headrace::client
