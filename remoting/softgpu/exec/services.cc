// The functions behind env->services: from generated code into the scheduler and back.
#include <cstring>

#include "softgpu/exec/block_scheduler.h"
#include "softgpu/exec/device_services.h"

namespace headrace::softgpu::exec {

namespace {

WarpSlot& slot_of(sg_warp_env* env) { return *static_cast<WarpSlot*>(env->block); }

void barrier_n(sg_warp_env* env, std::uint32_t id, std::uint32_t count) {
  WarpSlot& slot = slot_of(env);
  slot.thread->enter_scheduler();
  slot.block->scheduler->wait(slot, id % SG_MAX_BARRIERS, count);
  slot.thread->enter_kernel();
}

void barrier(sg_warp_env* env) { barrier_n(env, 0, 0); }

void arrive(sg_warp_env* env, std::uint32_t id, std::uint32_t count) {
  WarpSlot& slot = slot_of(env);
  slot.thread->enter_scheduler();
  slot.block->scheduler->arrive(slot, id % SG_MAX_BARRIERS, count);
  slot.thread->enter_kernel();
}

std::uint32_t barrier_reduce(sg_warp_env* env, std::uint32_t id, std::uint32_t count,
                             std::uint32_t op, std::uint32_t predicate, std::uint32_t mask) {
  WarpSlot& slot = slot_of(env);
  slot.thread->enter_scheduler();
  const std::uint32_t result =
      slot.block->scheduler->reduce(slot, id % SG_MAX_BARRIERS, count, op, predicate, mask);
  slot.thread->enter_kernel();
  return result;
}

void yield(sg_warp_env* env) {
  WarpSlot& slot = slot_of(env);
  slot.thread->enter_scheduler();
  slot.block->scheduler->yield(slot);
  slot.thread->enter_kernel();
}

LaunchStatus status_of(std::uint32_t kind) {
  switch (kind) {
    case SG_TRAP_ILLEGAL_ADDRESS:
      return LaunchStatus::illegal_address;
    case SG_TRAP_MISALIGNED:
      return LaunchStatus::misaligned_address;
    case SG_TRAP_ASSERT:
      return LaunchStatus::assertion;
    case SG_TRAP_ILLEGAL_INSTRUCTION:
      return LaunchStatus::illegal_instruction;
    case SG_TRAP_STACK_OVERFLOW:
      return LaunchStatus::stack_overflow;
    default:
      return LaunchStatus::trap;
  }
}

// Called from within generated code, so without any lock: the ranges do not change during a launch.
int registered(const sg_warp_env* env, std::uint64_t address, std::uint64_t bytes) {
  const Launch& launch = static_cast<WarpSlot*>(env->block)->block->scheduler->launch();
  for (const Window& window : launch.registered) {
    if (address >= window.lo && address < window.hi) return window.hi - address >= bytes;
  }
  return 0;
}

// GNU's attribute is a part of the function's type, as that of the table is.
[[gnu::noreturn]] void trap(sg_warp_env* env, std::uint32_t kind, std::uint64_t address) {
  ThreadState& thread = *slot_of(env).thread;
  thread.enter_scheduler();
  thread.drop_fibers(status_of(kind), address);
}

}  // namespace

const sg_services kServices = {
    .abi_version = SG_ABI_VERSION,
    .bytes = sizeof(sg_services),
    .barrier = &barrier,
    .barrier_n = &barrier_n,
    .arrive = &arrive,
    .barrier_reduce = &barrier_reduce,
    .yield = &yield,
    .trap = &trap,
    .print = &print,
    .assert_fail = &assert_fail,
    .allocate = &allocate,
    .release = &release,
    .registered = &registered,
    .reserved = {},
};

}  // namespace headrace::softgpu::exec
