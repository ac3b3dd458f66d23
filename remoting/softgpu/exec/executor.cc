#include "softgpu/exec/executor.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "softgpu/exec/cancel.h"
#include "softgpu/exec/faults.h"
#include "softgpu/exec/job.h"
#include "softgpu/exec/watchdog.h"
#include "softgpu/exec/worker_pool.h"

namespace headrace::softgpu {

namespace {

constexpr std::uint32_t kMaxThreadsPerBlock = 1024;
// Each resident warp of a cooperative grid has a stack of its own.
constexpr std::uint32_t kMaxResidentWarps = 1024;
constexpr unsigned kMaxWorkers = 256;

bool deterministic() {
  const char* setting = std::getenv("HEADRACE_SOFTGPU_DETERMINISTIC");
  return setting != nullptr && std::strcmp(setting, "1") == 0;
}

unsigned threads_setting() {
  if (deterministic()) return 1;
  if (const char* setting = std::getenv("HEADRACE_SOFTGPU_THREADS")) {
    const long wanted = std::strtol(setting, nullptr, 10);
    if (wanted > 0) return static_cast<unsigned>(std::min<long>(wanted, kMaxWorkers));
  }
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return std::clamp(static_cast<unsigned>(CPU_COUNT(&cores)), 1u, kMaxWorkers);
}

// Of launches that bring no limit of their own; 0 = none.
std::chrono::milliseconds time_limit_setting() {
  constexpr double kLongest = 1e6;
  const char* setting = std::getenv("HEADRACE_SOFTGPU_TIMEOUT");
  const double seconds = setting != nullptr ? std::strtod(setting, nullptr) : 0;
  if (!(seconds > 0)) return std::chrono::milliseconds{0};
  const double milliseconds = std::ceil(std::min(seconds, kLongest) * 1000);
  return std::chrono::milliseconds{static_cast<std::int64_t>(milliseconds)};
}

// Everything that has threads or locks. Never destroyed: launches may run while the process ends.
// A forked child starts with a fresh one, and the parent's is left alone: its threads do not
// exist there and its locks may be held.
struct Runtime {
  const unsigned threads = threads_setting();
  const bool one_at_a_time = deterministic();
  const std::chrono::milliseconds time_limit = time_limit_setting();
  exec::WorkerPool pool{threads - 1};
  exec::Watchdog watchdog;
  std::mutex turn;  // deterministic: held by the launch that runs
};

Runtime* g_runtime = nullptr;
pthread_mutex_t g_runtime_mutex = PTHREAD_MUTEX_INITIALIZER;

void after_fork_in_child() {
  g_runtime = nullptr;
  pthread_mutex_init(&g_runtime_mutex, nullptr);
  exec::reset_fault_lock_after_fork();
}

Runtime* runtime() {
  pthread_mutex_lock(&g_runtime_mutex);
  if (g_runtime == nullptr) {
    static bool registered = false;
    if (!registered) registered = pthread_atfork(nullptr, nullptr, &after_fork_in_child) == 0;
    g_runtime = new (std::nothrow) Runtime;
  }
  Runtime* result = g_runtime;
  pthread_mutex_unlock(&g_runtime_mutex);
  return result;
}

bool acceptable(const Launch& launch) {
  const sg_kernel_desc* kernel = launch.kernel;
  if (kernel == nullptr || kernel->abi_version != SG_ABI_VERSION || kernel->entry == nullptr)
    return false;
  const std::uint64_t threads = launch.block.count();
  if (threads == 0 || threads > kMaxThreadsPerBlock || launch.grid.count() == 0) return false;
  if (kernel->max_threads != 0 && threads > kernel->max_threads) return false;
  if (launch.params_bytes != 0 && launch.params == nullptr) return false;
  if (launch.cooperative &&
      launch.grid.count() > max_cooperative_blocks(static_cast<std::uint32_t>(threads)))
    return false;
  return std::uint64_t{kernel->static_shared} + launch.dynamic_shared < UINT32_MAX - 512;
}

}  // namespace

LaunchResult run(const Launch& launch, unsigned threads) noexcept {
  if (!acceptable(launch)) return {.status = LaunchStatus::invalid};
  Runtime* shared = runtime();
  if (shared == nullptr) return {.status = LaunchStatus::out_of_resources};
  try {
    std::unique_lock<std::mutex> turn(shared->turn, std::defer_lock);
    if (shared->one_at_a_time) turn.lock();
    exec::Job job(launch, threads == 0 ? shared->threads : std::min(threads, shared->threads));
    {
      exec::CancelScope cancel(launch.cancel, job);
      exec::Watchdog::Scope limit(shared->watchdog, job,
                                  launch.timeout.count() > 0 ? launch.timeout : shared->time_limit);
      shared->pool.execute(job);
    }
    return job.result();
  } catch (const std::exception&) {
    return {.status = LaunchStatus::out_of_resources};
  }
}

std::chrono::milliseconds launch_time_limit() noexcept {
  Runtime* shared = runtime();
  return shared == nullptr ? std::chrono::milliseconds{0} : shared->time_limit;
}

unsigned worker_threads() noexcept {
  Runtime* shared = runtime();
  return shared == nullptr ? 1 : shared->threads;
}

std::uint32_t max_cooperative_blocks(std::uint32_t threads_per_block) noexcept {
  const std::uint32_t warps = (threads_per_block + SG_WARP_SIZE - 1) / SG_WARP_SIZE;
  return warps == 0 ? 0 : kMaxResidentWarps / warps;
}

const char* describe(LaunchStatus status) {
  switch (status) {
    case LaunchStatus::ok:
      return "ok";
    case LaunchStatus::illegal_address:
      return "illegal address";
    case LaunchStatus::misaligned_address:
      return "misaligned address";
    case LaunchStatus::illegal_instruction:
      return "illegal instruction";
    case LaunchStatus::trap:
      return "trap";
    case LaunchStatus::assertion:
      return "device assertion";
    case LaunchStatus::stack_overflow:
      return "stack overflow";
    case LaunchStatus::timeout:
      return "time limit exceeded";
    case LaunchStatus::deadlock:
      return "deadlock: every warp of a block waits";
    case LaunchStatus::cancelled:
      return "cancelled";
    case LaunchStatus::out_of_resources:
      return "not enough memory for stacks, shared or local memory";
    case LaunchStatus::invalid:
      return "launch or kernel descriptor not acceptable";
  }
  return "unknown";
}

}  // namespace headrace::softgpu
