#include "client/callbacks.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <utility>

#include "client/process.h"
#include "client/remote.h"

namespace headrace::client {
namespace {

// Enough for functions that wait for each other across streams, which CUDA does not promise to run
// together at all.
constexpr unsigned most_runners = 64;
// Drivers hold about a thousand entries a stream, and some calls are more than one.
constexpr std::uint64_t most_behind = 400;
// The server keeps what is copied to the device until its turn has come: so much weighs as a call.
constexpr std::size_t bytes_of_a_call = 64 << 10;
// While a call waits for room it looks this often whether its context has failed.
constexpr std::chrono::milliseconds look_after{200};

thread_local bool in_function = false;

// A thread of ours, for good. Signals are the program's, and may not be delivered on it. False:
// there is none to be had.
bool start_thread(const char* name, void* (*body)(void*), void* argument) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const bool started = pthread_create(&thread, nullptr, body, argument) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started) return false;
  pthread_setname_np(thread, name);
  pthread_detach(thread);
  return true;
}

}  // namespace

bool Callbacks::running_here() { return in_function; }

// ---------------------------------------------------------------- what is open

std::uint64_t Callbacks::add(const Function& function) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!start_threads_locked()) return 0;
  const std::uint64_t number = ++last_;
  Open& open = functions_[number];
  open.function = function;
  open.place = put_[function.stream_id];
  open_.fetch_add(1);
  awaited_.fetch_add(1);
  expected_.notify_one();
  return number;
}

void Callbacks::withdraw(std::uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  forget_locked(number);
}

void Callbacks::forget_locked(std::uint64_t number) {
  const auto found = functions_.find(number);
  if (found == functions_.end()) return;
  if (!found->second.arrived) awaited_.fetch_sub(1);
  functions_.erase(found);
  open_.fetch_sub(1);
  if (functions_.empty()) put_.clear();
  returned_.notify_all();
}

void Callbacks::drop_context(std::uint64_t context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto at = functions_.begin(); at != functions_.end();) {
    const auto next = std::next(at);
    if (at->second.function.context == context) forget_locked(at->first);
    at = next;
  }
}

void Callbacks::connection_lost() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ready_.clear();
  functions_.clear();
  put_.clear();
  open_ = 0;
  awaited_ = 0;
  returned_.notify_all();
}

void Callbacks::arrive(const protocol::CallbackRun& run) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = functions_.find(run.callback);
  if (!run.due) return forget_locked(run.callback);
  if (found != functions_.end() && !std::exchange(found->second.arrived, true)) {
    awaited_.fetch_sub(1);
  }
  // Also when its context has ended here: the server waits for the answer.
  ready_.push_back(run);
  if (idle_ < ready_.size() && runners_ < most_runners) {
    // Without one as many as there are have to do.
    if (start_thread("headrace-call", &Callbacks::run, this)) ++runners_;
  }
  arrived_.notify_one();
}

// ---------------------------------------------------------------- threads

bool Callbacks::start_threads_locked() {
  if (runners_ == 0 && start_thread("headrace-call", &Callbacks::run, this)) ++runners_;
  if (!reading_) reading_ = start_thread("headrace-read", &Callbacks::read, this);
  return reading_ && runners_ != 0;
}

// Reads the connection as long as functions are awaited, for the case that no thread of the program
// waits for a reply meanwhile.
void* Callbacks::read(void* callbacks) {
  Callbacks& self = *static_cast<Callbacks*>(callbacks);
  Connection& connection = *process().connection;
  while (!connection.lost()) {
    {
      std::unique_lock<std::mutex> lock(self.mutex_);
      self.expected_.wait(lock, [&self] { return self.awaited_.load() != 0; });
    }
    connection.read_while([&self] { return self.awaited_.load() != 0; });
  }
  return nullptr;
}

// A function may end its thread: Python's does, at the end of the interpreter. The stack is then
// unwound through this frame, which therefore holds nothing that would have to be destroyed.
void* Callbacks::run(void* callbacks) {
  Callbacks* const self = static_cast<Callbacks*>(callbacks);
  Turn turn;
  while (self->next_turn(turn)) {
    in_function = true;
    if (turn.function.host != nullptr) {
      turn.function.host(turn.function.data);
    } else if (turn.function.callback != nullptr) {
      turn.function.callback(turn.function.stream, turn.result, turn.function.data);
    }
    in_function = false;
    self->end_turn(turn);
  }
  return nullptr;
}

// Waits for the next function. One that is not to run any more is empty.
bool Callbacks::next_turn(Turn& turn) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    ++idle_;
    arrived_.wait(lock, [this] { return !ready_.empty(); });
    --idle_;
    turn = {ready_.front().callback, static_cast<CUresult>(ready_.front().result), {}};
    ready_.pop_front();
    // At the end of the process, and after the connection was lost, nothing of the program runs.
    const auto found = functions_.find(turn.number);
    if (found != functions_.end() && enter() == CUDA_SUCCESS)
      turn.function = found->second.function;
  }
  process().output.write();  // what kernels before it have printed
  return true;
}

void Callbacks::end_turn(const Turn& turn) {
  // What the function has written to page-locked memory is what later work sees.
  process().host_twins.push();
  protocol::CallbackDone done;
  done.callback = turn.number;
  process().connection->tell(done);
  const std::lock_guard<std::mutex> lock(mutex_);
  forget_locked(turn.number);
}

// ---------------------------------------------------------------- room

bool Callbacks::holds(const Function& function, std::uint64_t context, std::uint64_t stream,
                      bool blocking) {
  if (function.context != context) return false;
  if (function.stream_id == stream) return true;
  const bool legacy = stream == 0 || function.stream_id == 0;
  return legacy && blocking && function.blocking;
}

bool Callbacks::is_held_locked(std::uint64_t context, std::uint64_t stream, bool blocking) const {
  for (const auto& [number, open] : functions_) {
    if (holds(open.function, context, stream, blocking)) return true;
  }
  return false;
}

// Of what waits in this stream for the oldest function that keeps it from going on.
std::uint64_t Callbacks::weight_behind_locked(std::uint64_t context, std::uint64_t stream,
                                              bool blocking) const {
  const auto put = put_.find(stream);
  if (put == put_.end()) return 0;
  for (const auto& [number, open] : functions_) {
    if (!holds(open.function, context, stream, blocking)) continue;
    // Before a function of another stream this one may hold nothing of it: all counts.
    return open.function.stream_id == stream ? put->second - open.place : put->second;
  }
  return 0;
}

CUresult Callbacks::make_room(const Context& context, std::uint64_t stream, bool blocking,
                              std::size_t bytes) {
  const std::uint64_t weight = 1 + bytes / bytes_of_a_call;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    // A call that is too much by itself waits until nothing is ahead of it.
    const std::uint64_t behind = weight_behind_locked(context.id, stream, blocking);
    if (behind + weight <= most_behind) break;
    if (behind == 0 && !is_held_locked(context.id, stream, blocking)) break;
    if (returned_.wait_for(lock, look_after) == std::cv_status::no_timeout) continue;
    lock.unlock();
    calls::CuStreamQuery call;
    call.hStream = stream;
    calls::CuStreamQuery::Reply reply;
    const CUresult state = trip_in(context.id, call, reply).told();
    if (state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY) return state;
    lock.lock();
  }
  if (!functions_.empty()) put_[stream] += weight;
  return CUDA_SUCCESS;
}

}  // namespace headrace::client
