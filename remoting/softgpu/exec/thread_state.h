// What one OS thread needs to execute warps. Every thread that takes part in a launch has one:
// the pool's own threads and the callers of run().
#pragma once

#include <sys/types.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <memory>
#include <vector>

#include "softgpu/exec/executor.h"
#include "softgpu/exec/fiber.h"
#include "softgpu/exec/mapped_region.h"

namespace headrace::softgpu::exec {

// A warp's fiber and what the services must know of it; sg_warp_env.block points here.
struct WarpSlot {
  sg_warp_env env{};
  struct BlockState* block = nullptr;
  struct ThreadState* thread = nullptr;
  Fiber* fiber = nullptr;
  std::uint32_t bit = 0;  // 1 << index in the block
  std::uint32_t reduced = 0;
};

struct Fault {
  LaunchStatus status = LaunchStatus::ok;
  std::uint64_t address = 0;
};

struct ThreadState {
  // True while kernel code runs on this thread, as opposed to our scheduler: only then may a
  // signal drop the fiber. Written by this thread, read by its own signal handler.
  volatile std::sig_atomic_t in_kernel = 0;
  WarpSlot* volatile current = nullptr;     // the warp that runs
  const std::atomic<bool>* stop = nullptr;  // the job's: set before this thread is kicked
  Fault fault;                              // why the fibers were dropped; ok = they ended
  Fiber thread_fiber;                       // the OS thread itself
  pid_t tid = 0;

  std::vector<std::unique_ptr<Fiber>> fibers;
  MappedRegion shared_memory, local_memory, signal_stack;

  // Ends everything that runs on this thread's fibers and returns to where they were started.
  [[noreturn]] void drop_fibers(LaunchStatus status, std::uint64_t address);

  // Every service begins and ends with these: a kick that arrives in between is not lost.
  void enter_scheduler() { in_kernel = 0; }
  void enter_kernel() {
    in_kernel = 1;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (stop->load(std::memory_order_acquire)) {
      in_kernel = 0;
      drop_fibers(LaunchStatus::cancelled, 0);
    }
  }

  bool reserve_fibers(std::size_t count);
  void trim();
};

// This thread's state, made at first use and freed when the thread ends; null without memory.
ThreadState* thread_state() noexcept;

}  // namespace headrace::softgpu::exec
