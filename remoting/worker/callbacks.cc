#include "worker/callbacks.h"

#include <utility>

#include "gen/messages.h"
#include "worker/session.h"

namespace headrace::worker {

Callbacks::~Callbacks() { abandon_all(); }

CUresult Callbacks::add(std::uint64_t number, CUstream stream, bool tell_errors) {
  if (waiting_.contains(number) || ended_.contains(number)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (waiting_.size() < most) {
    const std::shared_ptr<Function> function = std::make_shared<Function>();
    function->owner = this;
    function->number = number;
    function->context = session_.current().handle;
    function->self = function;
    waiting_[number] = function;
    if (tell_errors) {
      result = driver_.cuStreamAddCallback == nullptr
                   ? CUDA_ERROR_NOT_SUPPORTED
                   : driver_.cuStreamAddCallback(stream, &Callbacks::callback, function.get(), 0);
    } else {
      result = driver_.cuLaunchHostFunc == nullptr
                   ? CUDA_ERROR_NOT_SUPPORTED
                   : driver_.cuLaunchHostFunc(stream, &Callbacks::host_function, function.get());
    }
    if (result == CUDA_SUCCESS) return result;
    function->self.reset();
    waiting_.erase(number);
  }
  refuse(number, result);
  return result;
}

bool Callbacks::finish(std::uint64_t number) {
  const auto found = waiting_.find(number);
  if (found == waiting_.end()) return ended_.erase(number) != 0;
  if (!found->second->told) return false;
  const std::shared_ptr<Function> function = std::move(found->second);
  waiting_.erase(found);
  function->fate.store(Fate::done, std::memory_order_release);
  function->fate.notify_one();
  return true;
}

void Callbacks::abandon(std::uint64_t context) {
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    if (at->second->context != context) {
      ++at;
      continue;
    }
    abandon(*at->second);
    abandoned_.push_back(std::move(at->second));
    at = waiting_.erase(at);
  }
}

void Callbacks::abandon_all() {
  for (auto& [number, function] : waiting_) {
    abandon(*function);
    abandoned_.push_back(std::move(function));
  }
  waiting_.clear();
}

void Callbacks::abandon(Function& function) {
  if (function.told) ended_.insert(function.number);
  function.fate.store(Fate::abandoned, std::memory_order_release);
  function.fate.notify_one();
}

// ------------------------------------------------------------------ on a thread of the driver

void Callbacks::host_function(void* function) {
  take_turn(static_cast<Function*>(function), CUDA_SUCCESS);
}

void Callbacks::callback(CUstream, CUresult result, void* function) {
  take_turn(static_cast<Function*>(function), result);
}

void Callbacks::take_turn(Function* given, CUresult result) {
  const std::shared_ptr<Function> function = std::move(given->self);
  if (function->fate.load(std::memory_order_acquire) != Fate::open) return;
  // The session outlives this turn: its end abandons all, and then waits for its contexts.
  Callbacks* const owner = function->owner;
  owner->session_.pool().post(
      [owner, number = function->number, result] { owner->tell_turn(number, result); });
  function->fate.wait(Fate::open, std::memory_order_acquire);
}

// ------------------------------------------------------------------ on the network thread

// What kernels have printed and written to page-locked memory by now goes ahead.
void Callbacks::tell_turn(std::uint64_t number, CUresult result) {
  session_.host_twins().publish([this, number, result] {
    const auto found = waiting_.find(number);
    if (found == waiting_.end()) return;  // abandoned meanwhile
    found->second->told = true;
    session_.send_output();
    (void)session_.out().add(protocol::CallbackRun::kType,
                             protocol::CallbackRun{number, result, true});
  });
}

void Callbacks::refuse(std::uint64_t number, CUresult why) {
  (void)session_.out().add(protocol::CallbackRun::kType, protocol::CallbackRun{number, why, false});
}

}  // namespace headrace::worker
