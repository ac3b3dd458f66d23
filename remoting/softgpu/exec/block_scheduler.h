// Runs blocks of a grid on the present thread: their warps take turns at barriers and yields.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "softgpu/exec/thread_state.h"

namespace headrace::softgpu::exec {

struct BarrierState {
  std::uint32_t waiting = 0;   // warps that sleep in it
  std::uint32_t arrived = 0;   // warps that came, with or without waiting
  std::uint32_t arrivals = 0;  // how often warps came
  std::uint32_t needed = 0;    // arrivals that complete it; 0 = every warp that has not exited
  std::uint32_t popc = 0;
  bool all = true, any = false;
  std::uint32_t reduce_op = 0;
};

struct BlockState {
  std::uint32_t members = 0;  // one bit per warp
  std::uint32_t runnable = 0;
  std::uint32_t exited = 0;
  std::uint32_t pending = 0;  // barriers somebody came to, one bit each
  std::uint32_t threads = 0;
  WarpSlot* slots = nullptr;  // of warp 0
  struct BlockScheduler* scheduler = nullptr;
  std::array<BarrierState, SG_MAX_BARRIERS> barriers{};
};

struct GridPosition {
  Dim3 grid;
  // Blocks are numbered x first: the order in which they are dispatched.
  Dim3 of(std::uint64_t number) const {
    const std::uint64_t plane = number / grid.x;
    return {static_cast<std::uint32_t>(number % grid.x), static_cast<std::uint32_t>(plane % grid.y),
            static_cast<std::uint32_t>(plane / grid.y)};
  }
};

// One per thread and launch.
struct BlockScheduler {
 public:
  // `params` is padded as kernel_abi.h says; it, `launch` and `stop` outlive the scheduler.
  BlockScheduler(ThreadState& thread, const Launch& launch, const std::uint8_t* params,
                 const std::atomic<bool>& stop);

  // Makes stacks and memory for `resident` blocks at a time (1 unless cooperative).
  bool reserve(std::uint32_t resident);

  // Runs blocks [first, last) in order, or all at once when cooperative. Afterwards
  // thread.fault says whether they ended; where they did not, `where` and `warp` do.
  void run(std::uint64_t first, std::uint64_t last);
  Dim3 where() const { return where_; }
  std::uint32_t warp() const { return where_warp_; }

  // For the services.
  const Launch& launch() const { return launch_; }
  void wait(WarpSlot& self, std::uint32_t id, std::uint32_t count);
  void arrive(WarpSlot& self, std::uint32_t id, std::uint32_t count);
  std::uint32_t reduce(WarpSlot& self, std::uint32_t id, std::uint32_t count, std::uint32_t op,
                       std::uint32_t predicate, std::uint32_t mask);
  void yield(WarpSlot& self);

 private:
  static void warp_entry(void* slot);
  static void sequence_entry(void* scheduler);
  void run_sequence();
  [[noreturn]] void warp_ended(WarpSlot& self);
  void start_block(std::uint32_t resident_index, std::uint64_t number);
  bool meets_others();
  void enter(BarrierState& barrier, WarpSlot& self, std::uint32_t id, std::uint32_t count);
  bool complete(BlockState& block, std::uint32_t id);
  void switch_away(WarpSlot& self);
  WarpSlot* next_in_block(const BlockState& block, std::uint32_t after_bit) const;
  WarpSlot* next_anywhere(const WarpSlot& self) const;
  void idle_turn();

  ThreadState& thread_;
  const Launch& launch_;
  const std::atomic<bool>& stop_;
  const GridPosition grid_;
  std::uint32_t warps_ = 0;
  bool fibers_ = false;  // false: warps one after the other on a single stack
  std::vector<BlockState> blocks_;
  std::vector<WarpSlot> slots_;
  std::uint32_t live_blocks_ = 0;
  std::uint32_t idle_turns_ = 0;
  std::uint64_t sequence_next_ = 0, sequence_last_ = 0;
  Dim3 where_{0, 0, 0};
  std::uint32_t where_warp_ = 0;
  sg_warp_env prototype_{};
};

extern const sg_services kServices;

}  // namespace headrace::softgpu::exec
