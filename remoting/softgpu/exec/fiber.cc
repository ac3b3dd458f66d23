#include "softgpu/exec/fiber.h"

#include <sys/mman.h>

#ifdef HEADRACE_FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef HEADRACE_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace headrace::softgpu::exec {

Fiber::~Fiber() {
#ifdef HEADRACE_FIBER_TSAN
  if (mapping_ != nullptr && tsan_fiber_ != nullptr) __tsan_destroy_fiber(tsan_fiber_);
#endif
  if (mapping_ != nullptr) munmap(mapping_, kGuardBytes + kStackBytes);
}

bool Fiber::allocate(unsigned color) {
  void* mapping = mmap(nullptr, kGuardBytes + kStackBytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapping == MAP_FAILED) return false;
  std::byte* base = static_cast<std::byte*>(mapping);
  if (mprotect(base + kGuardBytes, kStackBytes, PROT_READ | PROT_WRITE) != 0) {
    munmap(mapping, kGuardBytes + kStackBytes);
    return false;
  }
  mapping_ = base;
  const std::size_t stagger = (color % 32) * 4160;  // a page and a cache line, 64-byte aligned
  top_ = base + kGuardBytes + kStackBytes - stagger;
  stack_bottom_ = base + kGuardBytes;
  stack_bytes_ = kStackBytes;
  return true;
}

void Fiber::prepare(void (*function)(void*), void* argument) {
  std::uint64_t* sp = reinterpret_cast<std::uint64_t*>(top_);
  *--sp = 0;  // keeps sg_fiber_start's own stack pointer at a multiple of 16
  *--sp = 0;
  *--sp = reinterpret_cast<std::uint64_t>(&sg_fiber_start);
  *--sp = 0;                                          // rbp
  *--sp = 0;                                          // rbx
  *--sp = reinterpret_cast<std::uint64_t>(argument);  // r12
  *--sp = reinterpret_cast<std::uint64_t>(function);  // r13
  *--sp = 0;                                          // r14
  *--sp = 0;                                          // r15
  sp_ = sp;
  fake_stack_ = nullptr;
#ifdef HEADRACE_FIBER_TSAN
  // A dropped fiber leaves its shadow call stack unbalanced, hence a new one each time.
  if (tsan_fiber_ != nullptr) __tsan_destroy_fiber(tsan_fiber_);
  tsan_fiber_ = __tsan_create_fiber(0);
#endif
}

bool Fiber::in_guard(std::uint64_t address) const {
  const std::uint64_t low = reinterpret_cast<std::uint64_t>(mapping_);
  return mapping_ != nullptr && address >= low && address < low + kGuardBytes;
}

#ifdef HEADRACE_FIBER_TSAN
__attribute__((no_sanitize_thread))
#endif
void Fiber::switch_to(Fiber& from, Fiber& to, bool from_ends) {
#ifdef HEADRACE_FIBER_TSAN
  if (from.tsan_fiber_ == nullptr) from.tsan_fiber_ = __tsan_get_current_fiber();
#endif
#ifdef HEADRACE_FIBER_ASAN
  __sanitizer_start_switch_fiber(from_ends ? nullptr : &from.fake_stack_, to.stack_bottom_,
                                 to.stack_bytes_);
#else
  (void)from_ends;
#endif
  sg_fiber_switch(&from.sp_, to.sp_);
  // Back in `from`, perhaps much later, perhaps because another fiber was abandoned.
#ifdef HEADRACE_FIBER_ASAN
  __sanitizer_finish_switch_fiber(from.fake_stack_, nullptr, nullptr);
#endif
#ifdef HEADRACE_FIBER_TSAN
  __tsan_switch_to_fiber(from.tsan_fiber_, 0);
#endif
}

#ifdef HEADRACE_FIBER_TSAN
__attribute__((no_sanitize_thread))
#endif
void Fiber::landed(Fiber& self, Fiber& thread) {
#ifdef HEADRACE_FIBER_ASAN
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
  if (thread.stack_bottom_ == nullptr) {
    thread.stack_bottom_ = bottom;
    thread.stack_bytes_ = bytes;
  }
#else
  (void)thread;
#endif
#ifdef HEADRACE_FIBER_TSAN
  __tsan_switch_to_fiber(self.tsan_fiber_, 0);
#else
  (void)self;
#endif
}

void Fiber::announce_abandon(Fiber& to) {
#ifdef HEADRACE_FIBER_ASAN
  __sanitizer_start_switch_fiber(nullptr, to.stack_bottom_, to.stack_bytes_);
#else
  (void)to;
#endif
}

#ifdef HEADRACE_FIBER_TSAN
__attribute__((no_sanitize_thread))
#endif
void Fiber::abandon(Fiber& to) {
  announce_abandon(to);
  sg_fiber_abandon(to.sp_);
}

}  // namespace headrace::softgpu::exec
