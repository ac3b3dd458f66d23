// Functions of the program in streams (PROTOCOL.md §7.9).
//
// The driver is given a function of ours, which tells the client and returns when the client has
// answered: so the stream waits exactly where CUDA would make it wait, also for events, other
// streams and failures, and none of that is rebuilt here. It costs the thread on which the driver
// runs it. NVIDIA's driver has one for all streams, so functions of independent streams come one
// after the other there, each a round trip long, as they would on a local machine while one of them
// runs; CUDA promises no more. No work but functions waits for that thread. The network thread
// never waits for a function: what would make it (a free, an unload) is done elsewhere meanwhile
// (later.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_set>
#include <vector>

#include "gen/driver_table.h"

namespace headrace::worker {

class Session;

class Callbacks {
 public:
  Callbacks(const DriverTable& driver, Session& session) : driver_(driver), session_(session) {}
  ~Callbacks();
  Callbacks(const Callbacks&) = delete;
  Callbacks& operator=(const Callbacks&) = delete;

  // Puts a function into a stream of the current context. `tell_errors`: it runs after a failure,
  // too, and is told of it.
  CUresult add(std::uint64_t number, CUstream stream, bool tell_errors);
  // The client hears that this function will not run.
  void refuse(std::uint64_t number, CUresult why);
  // CallbackDone. False: no such function is under way.
  bool finish(std::uint64_t number);
  // A context ends: nothing waits in its streams any more.
  void abandon(std::uint64_t context);
  void abandon_all();
  bool outstanding() const { return !waiting_.empty(); }

 private:
  static constexpr std::size_t most = 65'536;

  enum class Fate : std::uint32_t { open, done, abandoned };

  // Shared with the driver's thread.
  struct Function {
    Callbacks* owner = nullptr;
    std::uint64_t number = 0;
    std::uint64_t context = 0;
    std::atomic<Fate> fate{Fate::open};
    std::shared_ptr<Function> self;  // until the driver has run it, or never will
    bool told = false;               // network thread only
  };

  static void CUDA_CB host_function(void* function);
  static void CUDA_CB callback(CUstream stream, CUresult result, void* function);
  static void take_turn(Function* function, CUresult result);
  void tell_turn(std::uint64_t number, CUresult result);
  void abandon(Function& function);

  const DriverTable& driver_;
  Session& session_;
  std::map<std::uint64_t, std::shared_ptr<Function>> waiting_;  // by number
  std::unordered_set<std::uint64_t> ended_;  // told, then abandoned: the client still answers
  // Of ended contexts: a driver might yet call those that it was given.
  std::vector<std::shared_ptr<Function>> abandoned_;
};

}  // namespace headrace::worker
