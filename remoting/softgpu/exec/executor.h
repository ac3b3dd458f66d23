// Runs a compiled kernel's grid on the CPU: the entry point of the execution runtime.
//
// run() blocks until the grid is done or has failed, and uses its calling thread together with
// the pool's threads (HEADRACE_SOFTGPU_THREADS in all, default: the cores this process may use;
// HEADRACE_SOFTGPU_DETERMINISTIC=1: one launch at a time, on one thread, in block order). It may
// be called from any number of threads. A fault of the kernel never harms the process: the
// launch ends, its fibers are dropped, and the result says what happened where.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "softgpu/exec/device_heap.h"
#include "softgpu/exec/kernel_abi.h"

namespace headrace::softgpu {

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
  std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};

// A half-open range of addresses.
struct Window {
  std::uint64_t lo = 0, hi = 0;
};

// Ends launches from outside: one per context. cancel() is sticky, stops what runs, also endless
// loops, and refuses what comes. It returns at once; run() returns `cancelled` soon after.
class CancelToken {
 public:
  CancelToken();
  ~CancelToken();
  CancelToken(const CancelToken&) = delete;
  CancelToken& operator=(const CancelToken&) = delete;
  void cancel() noexcept;
  bool cancelled() const noexcept;

  struct State;
  State* state() const { return state_.get(); }

 private:
  std::unique_ptr<State> state_;
};

// Where the words of kernels go. Called by several threads at a time, while run() runs.
class KernelOutput {
 public:
  virtual void print(std::string_view text) noexcept = 0;      // printf
  virtual void assertion(std::string_view text) noexcept = 0;  // a failed assert; whole lines

 protected:
  ~KernelOutput() = default;
};

struct Launch {
  const sg_kernel_desc* kernel = nullptr;
  Dim3 grid, block;
  std::uint32_t dynamic_shared = 0;
  const std::uint8_t* params = nullptr;  // copied; what is missing up to param_bytes is zero
  std::size_t params_bytes = 0;
  std::uint8_t* globals = nullptr;
  Window arena, pinned;
  std::span<const Window> registered;  // host memory outside `pinned` that the kernel may touch
  bool cooperative = false;            // all blocks resident at once, see max_cooperative_blocks()
  std::uint64_t grid_workspace = 0;    // cooperative: 32 zeroed bytes in the arena
  std::uint64_t grid_id = 0;
  std::chrono::milliseconds timeout{0};  // wall time; 0 = HEADRACE_SOFTGPU_TIMEOUT
  CancelToken* cancel = nullptr;
  KernelOutput* output = nullptr;  // null: nobody reads it
  DeviceHeap* heap = nullptr;      // of malloc in kernels; null: it has no room
  // Of each thread, for kernels that use a stack (recursive functions); a multiple of 16.
  std::uint32_t stack_bytes = 64 << 10;
};

enum class LaunchStatus : std::uint8_t {
  ok,
  illegal_address,      // CUDA_ERROR_ILLEGAL_ADDRESS
  misaligned_address,   // CUDA_ERROR_MISALIGNED_ADDRESS
  illegal_instruction,  // CUDA_ERROR_ILLEGAL_INSTRUCTION
  trap,                 // CUDA_ERROR_LAUNCH_FAILED
  assertion,            // CUDA_ERROR_ASSERT
  stack_overflow,       // CUDA_ERROR_HARDWARE_STACK_ERROR
  timeout,              // CUDA_ERROR_LAUNCH_TIMEOUT
  deadlock,             // every warp of a block waits; CUDA_ERROR_LAUNCH_TIMEOUT
  cancelled,            // the context is being destroyed
  out_of_resources,     // CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES; nothing was executed
  invalid,              // descriptor or launch is not acceptable; nothing was executed
};

// "illegal address", for logs.
const char* describe(LaunchStatus status);

struct LaunchResult {
  LaunchStatus status = LaunchStatus::ok;
  std::uint64_t address = 0;  // illegal_address (0: not known), misaligned_address
  Dim3 block{0, 0, 0};        // where the first fault was seen
  std::uint32_t warp = 0;
  bool ok() const { return status == LaunchStatus::ok; }
};

// `threads`: upper bound of threads for this launch, 0 = all of the pool.
LaunchResult run(const Launch& launch, unsigned threads = 0) noexcept;

// HEADRACE_SOFTGPU_TIMEOUT; 0 = none.
std::chrono::milliseconds launch_time_limit() noexcept;

// Threads that one launch can use at most.
unsigned worker_threads() noexcept;

// Largest cooperative grid with so many threads per block.
std::uint32_t max_cooperative_blocks(std::uint32_t threads_per_block) noexcept;

// A compiled kernel's shared object in memory. Must outlive every launch of its kernel.
class KernelImage {
 public:
  // Null with `error` filled when the file is no kernel of this ABI version.
  static std::unique_ptr<KernelImage> load(const std::string& path, std::string& error);
  ~KernelImage();
  KernelImage(const KernelImage&) = delete;
  KernelImage& operator=(const KernelImage&) = delete;
  const sg_kernel_desc* desc() const { return desc_; }

 private:
  KernelImage() = default;
  void* handle_ = nullptr;
  const sg_kernel_desc* desc_ = nullptr;
};

}  // namespace headrace::softgpu
