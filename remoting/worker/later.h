// Driver calls that wait for work of the device: freeing memory, unloading code, unmapping. They
// are made on the network thread, except while functions of the program are outstanding
// (callbacks.h): then the work that they wait for may itself wait for an answer that the network
// thread has yet to read. Such calls are made one after the other on a thread of the pool.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace headrace::worker {

class Session;
struct SessionContext;

class Later {
 public:
  using Call = std::function<CUresult()>;
  using Then = std::function<void(CUresult)>;

  explicit Later(Session& session) : session_(session) {}

  // Makes the call in the current context, which has been entered, now or later; `then` gets its
  // result on the network thread. What goes with a context that ends meanwhile has succeeded.
  void run(Call call, Then then);
  void run_in(const SessionContext& context, Call call, Then then);
  // The same for a call that concerns no context.
  void run_anywhere(Call call, Then then);
  bool pending() const { return running_ || !queue_.empty(); }
  // Once all that is pending now is done.
  void afterwards(std::function<void()> then);
  // What was not begun in a context that ends is not made any more.
  void drop_context(std::uint64_t context);

 private:
  struct Item {
    std::uint64_t context = 0;  // 0: of none
    std::uint64_t life = 0;     // of the context
    CUcontext native = nullptr;
    Call call;
    Then then;
  };
  void add(Item item);
  void next();

  Session& session_;
  std::vector<Item> queue_;
  bool running_ = false;
};

}  // namespace headrace::worker
