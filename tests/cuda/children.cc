// Scenarios that spoil a process, each run in one of its own (run_child). Zero means "as expected";
// another number is the line that was not.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "tests/cuda/driver.h"
#include "tests/cuda/kernels.h"

#define EXPECT(expected, call)                                                            \
  do {                                                                                    \
    CUresult result_ = (call);                                                            \
    if (result_ != (expected)) {                                                          \
      std::fprintf(stderr, "%s:%d: %s gave %s, expected %s\n", __FILE__, __LINE__, #call, \
                   name_of(result_).c_str(), name_of(expected).c_str());                  \
      return __LINE__ % 250 + 1;                                                          \
    }                                                                                     \
  } while (0)

namespace {

int start(CUcontext* context) {
  EXPECT(CUDA_SUCCESS, cu.cuInit(0));
  EXPECT(CUDA_SUCCESS, cu.cuDevicePrimaryCtxRetain(context, 0));
  EXPECT(CUDA_SUCCESS, cu.cuCtxSetCurrent(*context));
  return 0;
}

// A kernel's stray write spoils the context: every later call says so, until it is destroyed.
int illegal_address() {
  CUcontext context = nullptr;
  if (int line = start(&context)) return line;
  CUmodule module = nullptr;
  CUfunction stray = nullptr;
  CUdeviceptr memory = 0;
  CUstream stream = nullptr;
  EXPECT(CUDA_SUCCESS, cu.cuModuleLoadData(&module, kKernels));
  EXPECT(CUDA_SUCCESS, cu.cuModuleGetFunction(&stray, module, "stray"));
  EXPECT(CUDA_SUCCESS, cu.cuMemAlloc_v2(&memory, 1024));
  EXPECT(CUDA_SUCCESS, cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT(CUDA_SUCCESS, launch(stray, 1, 1, stream, {}));
  EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuStreamSynchronize(stream));
  unsigned char byte = 0;
  EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuMemcpyDtoH_v2(&byte, memory, 1));
  EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuCtxSynchronize());
  EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuMemAlloc_v2(&memory, 1024));
  EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, launch(stray, 1, 1, nullptr, {}));
  // What needs no working context still works.
  CUcontext current = nullptr;
  int count = 0;
  EXPECT(CUDA_SUCCESS, cu.cuCtxGetCurrent(&current));
  EXPECT(CUDA_SUCCESS, cu.cuDeviceGetCount(&count));
  return current == context && count > 0 ? 0 : 1;
}

// The same in a context of its own; after its destruction another one works.
int illegal_address_then_new_context() {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  EXPECT(CUDA_SUCCESS, cu.cuInit(0));
  EXPECT(CUDA_SUCCESS, cu.cuCtxCreate_v2(&context, 0, 0));
  EXPECT(CUDA_SUCCESS, cu.cuModuleLoadData(&module, kKernels));
  EXPECT(CUDA_SUCCESS, cu.cuModuleGetFunction(&function, module, "stray"));
  EXPECT(CUDA_SUCCESS, launch(function, 1, 1, nullptr, {}));
  EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuCtxSynchronize());
  cu.cuCtxDestroy_v2(context);  // NVIDIA's driver answers the sticky error here, and destroys it
  EXPECT(CUDA_SUCCESS, cu.cuCtxCreate_v2(&context, 0, 0));
  EXPECT(CUDA_SUCCESS, cu.cuModuleLoadData(&module, kKernels));
  EXPECT(CUDA_SUCCESS, cu.cuModuleGetFunction(&function, module, "nothing"));
  EXPECT(CUDA_SUCCESS, launch(function, 1, 1, nullptr, {}));
  EXPECT(CUDA_SUCCESS, cu.cuCtxSynchronize());
  return 0;
}

// After a failure of the stream a callback runs and is told of it; a host function does not run.
int callbacks_after_a_failure() {
  CUcontext context = nullptr;
  if (int line = start(&context)) return line;
  CUmodule module = nullptr;
  CUfunction stray = nullptr;
  CUstream stream = nullptr;
  static std::atomic<int> told{-1};
  static std::atomic<bool> host_ran{false};
  EXPECT(CUDA_SUCCESS, cu.cuModuleLoadData(&module, kKernels));
  EXPECT(CUDA_SUCCESS, cu.cuModuleGetFunction(&stray, module, "stray"));
  EXPECT(CUDA_SUCCESS, cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::atomic<bool> launched{false};
  // So that all of it is enqueued before the failure.
  EXPECT(CUDA_SUCCESS, cu.cuLaunchHostFunc(
                           stream,
                           [](void* user) {
                             std::atomic<bool>& all = *static_cast<std::atomic<bool>*>(user);
                             while (!all) usleep(100);
                           },
                           &launched));
  EXPECT(CUDA_SUCCESS, launch(stray, 1, 1, stream, {}));
  EXPECT(CUDA_SUCCESS, cu.cuLaunchHostFunc(
                           stream, [](void*) { host_ran = true; }, nullptr));
  EXPECT(CUDA_SUCCESS,
         cu.cuStreamAddCallback(
             stream, [](CUstream, CUresult result, void*) { told = result; }, nullptr, 0));
  launched = true;
  EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuStreamSynchronize(stream));
  for (int i = 0; i < 50'000 && told == -1; ++i) usleep(100);
  if (told != CUDA_ERROR_ILLEGAL_ADDRESS) return 2;
  return host_ran ? 3 : 0;
}

// A context, and then the process, end while functions have not had their turn.
int end_with_functions() {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  static std::atomic<bool> go{false}, reached{false};
  CUhostFn wait = [](void*) {
    reached = true;
    while (!go) usleep(100);
  };
  EXPECT(CUDA_SUCCESS, cu.cuInit(0));
  EXPECT(CUDA_SUCCESS, cu.cuCtxCreate_v2(&context, 0, 0));
  EXPECT(CUDA_SUCCESS, cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT(CUDA_SUCCESS, cu.cuLaunchHostFunc(stream, wait, nullptr));
  for (int i = 0; i < 10; ++i) {
    EXPECT(CUDA_SUCCESS, cu.cuLaunchHostFunc(
                             stream, [](void*) {}, nullptr));
  }
  while (!reached) usleep(100);
  std::thread opener([] {
    usleep(20'000);
    go = true;
  });
  EXPECT(CUDA_SUCCESS, cu.cuCtxDestroy_v2(context));
  opener.join();
  // And once more, without an end to it.
  go = reached = false;
  EXPECT(CUDA_SUCCESS, cu.cuCtxCreate_v2(&context, 0, 0));
  EXPECT(CUDA_SUCCESS, cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT(CUDA_SUCCESS, cu.cuLaunchHostFunc(stream, wait, nullptr));
  while (!reached) usleep(100);
  return 0;
}

// Calls before cuInit.
int not_initialized() {
  int count = 0, version = 0;
  CUcontext context = nullptr;
  EXPECT(CUDA_ERROR_NOT_INITIALIZED, cu.cuDeviceGetCount(&count));
  EXPECT(CUDA_ERROR_NOT_INITIALIZED, cu.cuCtxGetCurrent(&context));
  EXPECT(CUDA_SUCCESS, cu.cuDriverGetVersion(&version));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cu.cuInit(1));
  EXPECT(CUDA_SUCCESS, cu.cuInit(0));
  EXPECT(CUDA_SUCCESS, cu.cuDeviceGetCount(&count));
  return version >= 11000 ? 0 : 1;
}

int in_child(int (*body)()) {
  std::fflush(stderr);
  pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int child_of_initialized() {
  int count = 0;
  EXPECT(CUDA_ERROR_NOT_INITIALIZED, cu.cuInit(0));
  EXPECT(CUDA_ERROR_NOT_INITIALIZED, cu.cuDeviceGetCount(&count));
  EXPECT(CUDA_ERROR_NOT_INITIALIZED, cu.cuCtxSynchronize());
  return 0;
}

// A forked child of an initialised process has no CUDA, and does not disturb its parent.
int fork_after_init() {
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  if (int line = start(&context)) return line;
  EXPECT(CUDA_SUCCESS, cu.cuMemAlloc_v2(&memory, 1 << 20));
  EXPECT(CUDA_SUCCESS, cu.cuMemsetD8Async(memory, 3, 1 << 20, nullptr));
  if (int line = in_child(child_of_initialized)) return line;
  unsigned char byte = 0;
  EXPECT(CUDA_SUCCESS, cu.cuMemcpyDtoH_v2(&byte, memory + 12345, 1));
  return byte == 3 ? 0 : 1;
}

// A child inherits page-locked memory as it inherits any other; what it does with it is its own.
int spoil_page_locked(void* memory) {
  static_cast<volatile unsigned char*>(memory)[0] = 99;
  return cu.cuMemFreeHost(memory) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1;
}

int fork_with_page_locked() {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction step = nullptr;
  void* memory = nullptr;
  if (int line = start(&context)) return line;
  EXPECT(CUDA_SUCCESS, cu.cuModuleLoadData(&module, kKernels));
  EXPECT(CUDA_SUCCESS, cu.cuModuleGetFunction(&step, module, "step"));
  EXPECT(CUDA_SUCCESS, cu.cuMemAllocHost_v2(&memory, 4096));
  volatile std::uint32_t* word = static_cast<std::uint32_t*>(memory);
  std::uint32_t multiplier = 2, addend = 1;
  *word = 1;
  EXPECT(CUDA_SUCCESS, launch(step, 1, 1, nullptr, {&memory, &multiplier, &addend}));
  pid_t child = fork();
  if (child == 0) _exit(spoil_page_locked(memory));
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 1;
  EXPECT(CUDA_SUCCESS, cu.cuCtxSynchronize());
  if (*word != 3) return 2;
  EXPECT(CUDA_SUCCESS, launch(step, 1, 1, nullptr, {&memory, &multiplier, &addend}));
  EXPECT(CUDA_SUCCESS, cu.cuCtxSynchronize());
  return *word == 7 ? 0 : 3;
}

int use_device() {
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  unsigned char byte = 0;
  if (int line = start(&context)) return line;
  EXPECT(CUDA_SUCCESS, cu.cuMemAlloc_v2(&memory, 4096));
  EXPECT(CUDA_SUCCESS, cu.cuMemsetD8_v2(memory, 9, 4096));
  EXPECT(CUDA_SUCCESS, cu.cuMemcpyDtoH_v2(&byte, memory + 4095, 1));
  return byte == 9 ? 0 : 1;
}

// One that was forked before cuInit is a process like any other; so is its parent.
int fork_before_init() {
  if (int line = in_child(use_device)) return line;
  return use_device();
}

// A program that ends while a stream waits for what never comes.
int unsatisfied_wait() {
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  CUstream stream = nullptr;
  if (int line = start(&context)) return line;
  EXPECT(CUDA_SUCCESS, cu.cuMemAlloc_v2(&memory, 64));
  EXPECT(CUDA_SUCCESS, cu.cuMemsetD32_v2(memory, 0, 16));
  EXPECT(CUDA_SUCCESS, cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT(CUDA_SUCCESS, cu.cuStreamWaitValue32_v2(stream, memory, 1, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(stream));
  return 0;
}

}  // namespace

int child_main(const std::string& scenario) {
  if (scenario == "illegal_address") return illegal_address();
  if (scenario == "illegal_address_then_new_context") return illegal_address_then_new_context();
  if (scenario == "callbacks_after_a_failure") return callbacks_after_a_failure();
  if (scenario == "end_with_functions") return end_with_functions();
  if (scenario == "not_initialized") return not_initialized();
  if (scenario == "fork_after_init") return fork_after_init();
  if (scenario == "fork_before_init") return fork_before_init();
  if (scenario == "fork_with_page_locked") return fork_with_page_locked();
  if (scenario == "unsatisfied_wait") return unsatisfied_wait();
  std::fprintf(stderr, "driver_tests: no scenario %s\n", scenario.c_str());
  return 255;
}
