// Turns signals of kernel code into launch results, and leaves all other signals of the process
// to whoever handled them before.
#pragma once

#include "softgpu/exec/thread_state.h"

namespace headrace::softgpu::exec {

// Makes this thread's faults ours for its lifetime: alternative signal stack, unblocked signals,
// handlers in place. Restores everything at the end, as callers' threads may be foreign.
class FaultScope {
 public:
  explicit FaultScope(ThreadState& thread);
  ~FaultScope();
  FaultScope(const FaultScope&) = delete;
  FaultScope& operator=(const FaultScope&) = delete;
  bool ok() const { return ok_; }

 private:
  ThreadState& thread_;
  stack_t previous_stack_{};
  sigset_t previous_mask_{};
  unsigned previous_mxcsr_ = 0;
  bool ok_ = false;
};

// Makes `thread` look at its stop flag now, also inside an endless loop. The thread must be
// alive; a kick that arrives when it runs no kernel is ignored.
void kick(const ThreadState& thread);

// For the child side of a fork: another thread may have held the lock.
void reset_fault_lock_after_fork();

}  // namespace headrace::softgpu::exec
