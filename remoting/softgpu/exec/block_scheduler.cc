#include "softgpu/exec/block_scheduler.h"

#include <sched.h>

#include <algorithm>
#include <bit>

namespace headrace::softgpu::exec {

namespace {
// A warp that yields while nobody else of its block can run waits for another thread: after so
// many turns the core is offered to it.
constexpr std::uint32_t kIdleTurnsBeforeOffer = 32;

std::uint32_t warp_count(const Launch& launch) {
  return static_cast<std::uint32_t>((launch.block.count() + SG_WARP_SIZE - 1) / SG_WARP_SIZE);
}

std::uint32_t shared_size(const Launch& launch) {
  return ((launch.kernel->static_shared + 15u) & ~15u) + launch.dynamic_shared;
}

// Of a one-bit mask: all higher bits. None behind the highest, where the shift gives 0.
std::uint32_t bits_behind(std::uint32_t bit) { return ~((bit << 1) - 1); }

void copy(const Dim3& from, std::uint32_t* to) {
  to[0] = from.x;
  to[1] = from.y;
  to[2] = from.z;
}
}  // namespace

BlockScheduler::BlockScheduler(ThreadState& thread, const Launch& launch,
                               const std::uint8_t* params, const std::atomic<bool>& stop)
    : thread_(thread),
      launch_(launch),
      stop_(stop),
      grid_{launch.grid},
      warps_(warp_count(launch)) {
  // A block of one warp never waits for another: it needs no fiber of its own.
  fibers_ =
      launch.cooperative || ((launch.kernel->flags & SG_KERNEL_NEEDS_FIBERS) != 0 && warps_ > 1);
  prototype_.params = const_cast<std::uint8_t*>(params);
  prototype_.globals = launch.globals;
  copy(launch.grid, prototype_.nctaid);
  copy(launch.block, prototype_.ntid);
  prototype_.threads = static_cast<std::uint32_t>(launch.block.count());
  prototype_.dynamic_shared = launch.dynamic_shared;
  prototype_.shared_bytes = shared_size(launch);
  prototype_.flags = launch.cooperative ? SG_ENV_COOPERATIVE : 0;
  prototype_.local_bytes = launch.kernel->local_bytes;
  if ((launch.kernel->flags & SG_KERNEL_USES_STACK) != 0)
    prototype_.local_bytes += launch.stack_bytes;
  prototype_.grid_id = launch.grid_id;
  prototype_.arena_lo = launch.arena.lo;
  prototype_.arena_hi = launch.arena.hi;
  prototype_.pinned_lo = launch.pinned.lo;
  prototype_.pinned_hi = launch.pinned.hi;
  prototype_.services = &kServices;
  prototype_.grid_workspace = launch.grid_workspace;
}

bool BlockScheduler::reserve(std::uint32_t resident) {
  const std::size_t slots = fibers_ ? std::size_t{resident} * warps_ : 1;
  const std::size_t shared = (std::size_t{prototype_.shared_bytes} + 511) & ~std::size_t{255};
  const std::size_t local =
      (std::size_t{prototype_.local_bytes} * SG_WARP_SIZE + 63) & ~std::size_t{63};
  if (!thread_.reserve_fibers(slots)) return false;
  if (!thread_.shared_memory.reserve(shared * resident)) return false;
  if (!thread_.local_memory.reserve(local * slots + 64)) return false;
  blocks_.resize(resident);
  slots_.resize(slots);
  for (std::size_t i = 0; i < slots; ++i) {
    const std::size_t block = fibers_ ? i / warps_ : 0;
    const std::uint32_t warp = fibers_ ? static_cast<std::uint32_t>(i % warps_) : 0;
    WarpSlot& slot = slots_[i];
    slot.env = prototype_;
    slot.env.shared = thread_.shared_memory.data() + shared * block;
    slot.env.local = thread_.local_memory.data() + local * i;
    slot.env.warp = warp;
    slot.env.block = &slot;
    slot.block = &blocks_[block];
    slot.thread = &thread_;
    slot.fiber = thread_.fibers[i].get();
    slot.bit = 1u << warp;
  }
  for (std::uint32_t b = 0; b < resident; ++b) {
    blocks_[b].slots = &slots_[fibers_ ? std::size_t{b} * warps_ : 0];
    blocks_[b].members = fibers_ ? (warps_ == 32 ? ~0u : (1u << warps_) - 1) : 1u;
    blocks_[b].threads = prototype_.threads;
    blocks_[b].scheduler = this;
  }
  thread_.stop = &stop_;
  return true;
}

void BlockScheduler::start_block(std::uint32_t resident_index, std::uint64_t number) {
  BlockState& block = blocks_[resident_index];
  const Dim3 position = grid_.of(number);
  block.runnable = block.members;
  block.exited = 0;
  if (block.pending != 0) block.barriers.fill({});  // arrivals nobody waited for
  block.pending = 0;
  for (std::uint32_t w = 0; w < warps_; ++w) {
    WarpSlot& slot = block.slots[w];
    copy(position, slot.env.ctaid);
    slot.fiber->prepare(&BlockScheduler::warp_entry, &slot);
  }
}

void BlockScheduler::run(std::uint64_t first, std::uint64_t last) {
  if (fibers_) {
    const std::uint64_t resident = blocks_.size();
    for (std::uint64_t number = first; number < last; number += resident) {
      live_blocks_ = static_cast<std::uint32_t>(std::min(resident, last - number));
      for (std::uint32_t b = 0; b < live_blocks_; ++b) start_block(b, number + b);
      thread_.current = &slots_[0];
      Fiber::switch_to(thread_.thread_fiber, *slots_[0].fiber);
      if (thread_.fault.status != LaunchStatus::ok) break;
    }
  } else {
    sequence_next_ = first;
    sequence_last_ = last;
    thread_.current = &slots_[0];
    slots_[0].fiber->prepare(&BlockScheduler::sequence_entry, this);
    Fiber::switch_to(thread_.thread_fiber, *slots_[0].fiber);
  }
  if (thread_.fault.status != LaunchStatus::ok && thread_.current != nullptr) {
    const sg_warp_env& env = thread_.current->env;
    where_ = {env.ctaid[0], env.ctaid[1], env.ctaid[2]};
    where_warp_ = env.warp;
  }
}

// ---- without fibers: one stack, warps and blocks in order ------------------------------------

void BlockScheduler::sequence_entry(void* scheduler) {
  BlockScheduler& self = *static_cast<BlockScheduler*>(scheduler);
  Fiber::landed(*self.slots_[0].fiber, self.thread_.thread_fiber);
  self.run_sequence();
  Fiber::switch_to(*self.slots_[0].fiber, self.thread_.thread_fiber, true);
  __builtin_unreachable();
}

void BlockScheduler::run_sequence() {
  WarpSlot& slot = slots_[0];
  const sg_kernel_fn entry = launch_.kernel->entry;
  for (; sequence_next_ < sequence_last_; ++sequence_next_) {
    copy(grid_.of(sequence_next_), slot.env.ctaid);
    for (std::uint32_t warp = 0; warp < warps_; ++warp) {
      slot.env.warp = warp;
      thread_.enter_kernel();
      entry(&slot.env);
      thread_.enter_scheduler();
    }
  }
}

// ---- with fibers ------------------------------------------------------------------------------

void BlockScheduler::warp_entry(void* argument) {
  WarpSlot& slot = *static_cast<WarpSlot*>(argument);
  Fiber::landed(*slot.fiber, slot.thread->thread_fiber);
  slot.thread->enter_kernel();
  slot.block->scheduler->launch_.kernel->entry(&slot.env);
  slot.thread->enter_scheduler();
  slot.block->scheduler->warp_ended(slot);
}

void BlockScheduler::warp_ended(WarpSlot& self) {
  BlockState& block = *self.block;
  block.runnable &= ~self.bit;
  block.exited |= self.bit;
  for (std::uint32_t rest = block.pending; rest != 0; rest &= rest - 1)
    complete(block, static_cast<std::uint32_t>(std::countr_zero(rest)));
  if (block.exited == block.members && --live_blocks_ == 0) {
    Fiber::switch_to(*self.fiber, thread_.thread_fiber, true);
    __builtin_unreachable();
  }
  WarpSlot* next = next_anywhere(self);
  if (next == nullptr) thread_.drop_fibers(LaunchStatus::deadlock, 0);
  thread_.current = next;
  Fiber::switch_to(*self.fiber, *next->fiber, true);
  __builtin_unreachable();
}

void BlockScheduler::enter(BarrierState& barrier, WarpSlot& self, std::uint32_t id,
                           std::uint32_t count) {
  const bool whole_block = count == 0 || count >= self.block->threads;
  barrier.needed = whole_block ? 0 : (count + SG_WARP_SIZE - 1) / SG_WARP_SIZE;
  barrier.arrived |= self.bit;
  ++barrier.arrivals;
  self.block->pending |= 1u << id;
}

// Wakes the warps that wait in the barrier if it is complete.
bool BlockScheduler::complete(BlockState& block, std::uint32_t id) {
  BarrierState& barrier = block.barriers[id];
  const bool done = barrier.needed == 0 ? (barrier.arrived | block.exited) == block.members
                                        : barrier.arrivals >= barrier.needed;
  if (!done) return false;
  const std::uint32_t result = barrier.reduce_op == SG_REDUCE_POPC  ? barrier.popc
                               : barrier.reduce_op == SG_REDUCE_AND ? barrier.all
                                                                    : barrier.any;
  // Kept per warp: the barrier may be used again before the last one has woken up.
  for (std::uint32_t rest = barrier.waiting; rest != 0; rest &= rest - 1)
    block.slots[std::countr_zero(rest)].reduced = result;
  block.runnable |= barrier.waiting;
  block.pending &= ~(1u << id);
  barrier = {};
  return true;
}

// Without fibers a block has one warp, and nobody to wait for. Code that meets a barrier in a
// larger block but did not say so in its descriptor is wrong; it must not run past the barrier.
bool BlockScheduler::meets_others() {
  if (!fibers_ && warps_ > 1) thread_.drop_fibers(LaunchStatus::illegal_instruction, 0);
  return fibers_;
}

void BlockScheduler::wait(WarpSlot& self, std::uint32_t id, std::uint32_t count) {
  if (!meets_others()) return;
  BlockState& block = *self.block;
  BarrierState& barrier = block.barriers[id];
  enter(barrier, self, id, count);
  barrier.waiting |= self.bit;
  block.runnable &= ~self.bit;
  if (!complete(block, id)) switch_away(self);
}

void BlockScheduler::arrive(WarpSlot& self, std::uint32_t id, std::uint32_t count) {
  if (!meets_others()) return;
  enter(self.block->barriers[id], self, id, count);
  complete(*self.block, id);
}

std::uint32_t BlockScheduler::reduce(WarpSlot& self, std::uint32_t id, std::uint32_t count,
                                     std::uint32_t op, std::uint32_t predicate,
                                     std::uint32_t mask) {
  BarrierState own;  // of a block of one warp
  BarrierState& barrier = meets_others() ? self.block->barriers[id] : own;
  predicate &= mask;
  barrier.reduce_op = op;
  barrier.popc += static_cast<std::uint32_t>(std::popcount(predicate));
  barrier.all = barrier.all && predicate == mask;
  barrier.any = barrier.any || predicate != 0;
  if (!fibers_) return op == SG_REDUCE_POPC ? own.popc : op == SG_REDUCE_AND ? own.all : own.any;
  wait(self, id, count);
  return self.reduced;
}

void BlockScheduler::yield(WarpSlot& self) {
  WarpSlot* next = nullptr;
  if (fibers_) {
    // Cooperative: the awaited warp may be in any block, so go round all of them.
    next = blocks_.size() > 1 ? next_anywhere(self) : next_in_block(*self.block, self.bit);
  }
  if (next == nullptr || next == &self) {
    idle_turn();
    return;
  }
  thread_.current = next;
  Fiber::switch_to(*self.fiber, *next->fiber);
}

void BlockScheduler::idle_turn() {
  __builtin_ia32_pause();
  if (++idle_turns_ % kIdleTurnsBeforeOffer == 0) sched_yield();
}

void BlockScheduler::switch_away(WarpSlot& self) {
  WarpSlot* next = next_in_block(*self.block, self.bit);
  if (next == nullptr) next = next_anywhere(self);
  if (next == nullptr) thread_.drop_fibers(LaunchStatus::deadlock, 0);
  thread_.current = next;
  Fiber::switch_to(*self.fiber, *next->fiber);
}

// Round robin: the first runnable warp behind `after_bit`, at last that warp itself.
WarpSlot* BlockScheduler::next_in_block(const BlockState& block, std::uint32_t after_bit) const {
  if (block.runnable == 0) return nullptr;
  const std::uint32_t behind = block.runnable & bits_behind(after_bit);
  return &block.slots[std::countr_zero(behind != 0 ? behind : block.runnable)];
}

// The next runnable warp in the order of blocks, then warps; every warp gets its turn.
WarpSlot* BlockScheduler::next_anywhere(const WarpSlot& self) const {
  const std::size_t own = static_cast<std::size_t>(self.block - blocks_.data());
  const std::uint32_t behind = self.block->runnable & bits_behind(self.bit);
  if (behind != 0) return &self.block->slots[std::countr_zero(behind)];
  for (std::size_t k = 1; k <= blocks_.size(); ++k) {
    const BlockState& block = blocks_[(own + k) % blocks_.size()];
    if (block.runnable != 0) return &block.slots[std::countr_zero(block.runnable)];
  }
  return nullptr;
}

}  // namespace headrace::softgpu::exec
