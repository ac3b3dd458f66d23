#include "softgpu/exec/thread_state.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <new>

namespace headrace::softgpu::exec {

namespace {
// What a thread keeps between launches: the fibers of two full blocks, and some megabytes.
constexpr std::size_t kKeptFibers = 64;
constexpr std::size_t kKeptBytes = std::size_t{16} << 20;
}  // namespace

void ThreadState::drop_fibers(LaunchStatus status, std::uint64_t address) {
  in_kernel = 0;
  if (fault.status == LaunchStatus::ok) fault = {status, address};
  Fiber::abandon(thread_fiber);
}

bool ThreadState::reserve_fibers(std::size_t count) {
  while (fibers.size() < count) {
    std::unique_ptr<Fiber> fiber(new (std::nothrow) Fiber);
    if (!fiber || !fiber->allocate(static_cast<unsigned>(fibers.size()))) return false;
    fibers.push_back(std::move(fiber));
  }
  return true;
}

void ThreadState::trim() {
  if (fibers.size() > kKeptFibers) fibers.resize(kKeptFibers);
  shared_memory.trim(kKeptBytes);
  local_memory.trim(kKeptBytes);
}

ThreadState* thread_state() noexcept {
  thread_local std::unique_ptr<ThreadState> state(new (std::nothrow) ThreadState);
  // Asked each time: in a child the forking thread keeps its state but has another id.
  if (state) state->tid = static_cast<pid_t>(syscall(SYS_gettid));
  return state.get();
}

}  // namespace headrace::softgpu::exec
