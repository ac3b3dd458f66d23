#include "remoting/softgpu/driver/work.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>

namespace headrace::softgpu {
namespace {

constexpr unsigned kMaxThreads = 256;
constexpr std::chrono::seconds kIdle{2};
// A queue of a device holds about a thousand launches, and several may be filled.
constexpr std::size_t kMostUnderWay = 16384;
constexpr std::uint64_t kMostHeld = std::uint64_t{256} << 20;

}  // namespace

void Engine::wait_for_room() {
  std::unique_lock<std::mutex> lock(mutex_);
  room_.wait(lock, [this] { return under_way_ < kMostUnderWay && held_ < kMostHeld; });
}

OperationPtr Engine::submit(Operation::Body body, int priority,
                            const std::vector<OperationPtr>& after, std::uint64_t held) {
  OperationPtr operation = std::make_shared<Operation>(std::move(body), priority, held);
  std::lock_guard<std::mutex> guard(mutex_);
  ++under_way_;
  held_ += held;
  for (const OperationPtr& one : after) {
    if (one == nullptr || one->done()) continue;
    one->next_.push_back(operation);
    ++operation->waits_;
  }
  if (operation->waits_ == 0) push_ready_locked(operation);
  return operation;
}

OperationPtr Engine::make_gate(int priority) {
  OperationPtr gate = std::make_shared<Operation>(nullptr, priority, 0);
  gate->waits_ = 1;  // for open()
  std::lock_guard<std::mutex> guard(mutex_);
  ++under_way_;
  return gate;
}

void Engine::open(const OperationPtr& gate) {
  std::lock_guard<std::mutex> guard(mutex_);
  if (--gate->waits_ == 0) push_ready_locked(gate);
}

void Engine::push_ready_locked(OperationPtr operation) {
  ready_[operation->priority_].push_back(std::move(operation));
  ++ready_count_;
  if (idle_ >= ready_count_ || threads_ >= kMaxThreads || !start_thread_locked()) {
    wake_.notify_one();
  }
}

OperationPtr Engine::pop_ready_locked() {
  for (auto& [priority, queue] : ready_) {
    if (queue.empty()) continue;
    OperationPtr out = std::move(queue.front());
    queue.pop_front();
    --ready_count_;
    return out;
  }
  return nullptr;
}

// Marks it done and returns a follower to run on this thread; the others become ready.
OperationPtr Engine::finish(const OperationPtr& operation) {
  operation->body_ = nullptr;  // drops what it held before anybody can see that it is done
  OperationPtr mine;
  std::vector<OperationPtr> next;
  {
    std::lock_guard<std::mutex> guard(mutex_);
    const bool full = under_way_ >= kMostUnderWay || held_ >= kMostHeld;
    --under_way_;
    held_ -= operation->held_;
    if (full) room_.notify_all();
    operation->done_.store(1, std::memory_order_release);
    next.swap(operation->next_);
    for (OperationPtr& follower : next) {
      if (--follower->waits_ != 0) continue;
      if (mine == nullptr && ready_count_ == 0) {
        mine = std::move(follower);
      } else {
        push_ready_locked(std::move(follower));
      }
    }
  }
  operation->done_.notify_all();
  return mine;
}

bool Engine::start_thread_locked() {
  // Signals are the application's: none may be handled on a thread of ours.
  sigset_t all, before;
  sigfillset(&all);
  // Faults of a kernel are handled on the thread that runs it.
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  bool ok = pthread_create(&thread, &attributes, &Engine::thread_main, this) == 0;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (ok) ++threads_;
  return ok;
}

void* Engine::thread_main(void* engine) {
  pthread_setname_np(pthread_self(), "softgpu-stream");
  static_cast<Engine*>(engine)->worker();
  return nullptr;
}

void Engine::worker() {
  OperationPtr operation;
  for (;;) {
    if (operation == nullptr) {
      std::unique_lock<std::mutex> lock(mutex_);
      ++idle_;
      bool timed_out = false;
      while ((operation = pop_ready_locked()) == nullptr && !timed_out) {
        timed_out = wake_.wait_for(lock, kIdle) == std::cv_status::timeout;
      }
      --idle_;
      if (operation == nullptr) {
        --threads_;
        return;
      }
    }
    if (operation->body_) operation->body_();
    operation = finish(operation);
  }
}

}  // namespace headrace::softgpu
