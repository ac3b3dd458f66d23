// Fibers: one stack per warp, switched by hand. A fiber never leaves its OS thread.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#define HEADRACE_FIBER_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define HEADRACE_FIBER_TSAN 1
#endif

namespace headrace::softgpu::exec {

// Stack and guard have the same size: a frame of generated code may be large and is not probed,
// and must not reach over the guard into the next stack.
inline constexpr std::size_t kStackBytes = 4 << 20;
inline constexpr std::size_t kGuardBytes = 4 << 20;

class Fiber {
 public:
  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Maps the stack; false when there is no address space or memory. `color` staggers where
  // stacks begin, so that the frames of lockstep warps do not compete for the same cache sets.
  bool allocate(unsigned color);

  // Makes the next switch to this fiber call function(argument), which must never return.
  void prepare(void (*function)(void*), void* argument);

  bool in_guard(std::uint64_t address) const;

  // Switches from `from` (running) to `to`. `from_ends`: it will be prepared anew before it is
  // used again.
  static void switch_to(Fiber& from, Fiber& to, bool from_ends = false);

  // First thing on a fresh fiber, before any other code of ours; `thread` is the fiber of the
  // OS thread itself, whose stack bounds the sanitizers report here.
  static void landed(Fiber& self, Fiber& thread);

  // Drops what runs and continues in `to`, which must have switched away.
  [[noreturn]] static void abandon(Fiber& to);
  // The same from a signal handler: what a faulting context must be set to.
  static void announce_abandon(Fiber& to);
  void* saved_sp() const { return sp_; }

 private:
  void* sp_ = nullptr;
  std::byte* mapping_ = nullptr;
  std::byte* top_ = nullptr;
  // For the sanitizers only.
  const void* stack_bottom_ = nullptr;
  std::size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;
  void* tsan_fiber_ = nullptr;
};

extern "C" {
void sg_fiber_switch(void** save_sp, void* to_sp);
[[noreturn]] void sg_fiber_abandon(void* to_sp);
void sg_fiber_start();
}

}  // namespace headrace::softgpu::exec
