// Faults of kernels become results; the process, its threads and its own handlers go on.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "softgpu_exec_kernels.h"

using namespace headrace::softgpu;
using namespace softgpu_test;

#if defined(__SANITIZE_ADDRESS__)
// Otherwise the sanitizer would report the intended faults of instrumented test kernels.
#define UNCHECKED __attribute__((no_sanitize_address, no_sanitize_undefined))
#else
#define UNCHECKED
#endif

namespace {

// Block 3, warp 1 writes to the given address.
UNCHECKED void write_to(sg_warp_env* env) {
  if (block_number(env) == 3 && env->warp == 1) *param<volatile std::uint32_t*>(env, 0) = 1;
}

UNCHECKED void write_to_after_barrier(sg_warp_env* env) {
  env->services->barrier(env);
  write_to(env);
  env->services->barrier(env);
}

void trap_with(sg_warp_env* env) {
  const std::uint32_t kind = param<std::uint32_t>(env, 0);
  env->services->barrier(env);
  if (env->warp == 2) env->services->trap(env, kind, param<std::uint64_t>(env, 1));
  env->services->barrier(env);
}

UNCHECKED void endless(sg_warp_env* env) {
  std::atomic<std::uint32_t>* started = param<std::atomic<std::uint32_t>*>(env, 0);
  started->fetch_add(1);
  volatile std::uint64_t turns = 0;
  for (;;) (void)turns;
}

void endless_with_yield(sg_warp_env* env) {
  param<std::atomic<std::uint32_t>*>(env, 0)->fetch_add(1);
  for (;;) env->services->yield(env);
}

// Warp 0 waits at barrier 1, the others at barrier 2.
void cross_waiting(sg_warp_env* env) { env->services->barrier_n(env, env->warp == 0 ? 1 : 2, 0); }

// The first block faults, the others never end by themselves.
UNCHECKED void one_faults(sg_warp_env* env) {
  std::atomic<std::uint32_t>* started = param<std::atomic<std::uint32_t>*>(env, 0);
  started->fetch_add(1);
  volatile std::uint64_t turns = 0;
  while (block_number(env) != 0) (void)turns;
  *reinterpret_cast<volatile std::uint32_t*>(std::uintptr_t{0x1000}) = 1;
}

UNCHECKED __attribute__((noinline)) std::uint64_t recurse(std::uint64_t depth,
                                                          std::uint64_t limit) {
  volatile std::uint64_t frame[64];
  frame[depth % 64] = depth;
  if (depth == limit) return depth;
  return recurse(depth + 1, limit) + frame[depth % 64];
}

UNCHECKED void deep(sg_warp_env* env) {
  volatile std::uint64_t result = recurse(0, param<std::uint64_t>(env, 0));
  (void)result;
}

UNCHECKED void illegal_instruction(sg_warp_env*) { __builtin_trap(); }

void nothing(sg_warp_env*) {}

void barrier_without_flag(sg_warp_env* env) { env->services->barrier(env); }

// An address that is mapped to nothing.
struct Hole {
  Hole() : page(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~Hole() { munmap(page, 4096); }
  void* page;
};

std::size_t open_maps() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    count += !entry.path().empty();
  return count;
}

sigjmp_buf g_escape;
std::atomic<int> g_handled{0};
void escape_handler(int) {
  ++g_handled;
  siglongjmp(g_escape, 1);
}

volatile std::uintptr_t g_bad_address = 8;
UNCHECKED void fault_on_purpose() { *reinterpret_cast<volatile int*>(g_bad_address) = 1; }

__attribute__((noinline)) void fault_and_escape() {
  if (sigsetjmp(g_escape, 1) == 0) fault_on_purpose();
}

}  // namespace

TEST_CASE("an illegal address ends the launch and names it, and the process goes on") {
  Hole hole;
  for (unsigned threads : {1u, 2u}) {
    for (std::uint32_t flags : {0u, SG_KERNEL_NEEDS_FIBERS}) {
      CAPTURE(threads);
      CAPTURE(flags);
      sg_kernel_fn kernel = flags == 0 ? write_to : write_to_after_barrier;
      TestLaunch launch(kernel, {16}, {128}, {address(hole.page) + 12}, flags);
      const LaunchResult result = launch.run(threads);
      CHECK(result.status == LaunchStatus::illegal_address);
      CHECK(result.address == address(hole.page) + 12);
      CHECK(result.block.x == 3);
      CHECK(result.warp == 1);
      std::uint32_t target = 0;
      launch.params[0] = address(&target);
      CHECK(launch.run(threads).ok());
      CHECK(target == 1);
    }
  }
}

TEST_CASE("a non-canonical address is a fault without an address") {
  TestLaunch launch(write_to, {16}, {64}, {0x8000'0000'0000'0000});
  CHECK(launch.run().status == LaunchStatus::illegal_address);
}

TEST_CASE("traps have their kind") {
  const std::pair<std::uint32_t, LaunchStatus> kinds[] = {
      {SG_TRAP_ILLEGAL_ADDRESS, LaunchStatus::illegal_address},
      {SG_TRAP_MISALIGNED, LaunchStatus::misaligned_address},
      {SG_TRAP_TRAP, LaunchStatus::trap},
      {SG_TRAP_ASSERT, LaunchStatus::assertion},
      {SG_TRAP_ILLEGAL_INSTRUCTION, LaunchStatus::illegal_instruction},
      {SG_TRAP_STACK_OVERFLOW, LaunchStatus::stack_overflow}};
  for (const auto& [kind, status] : kinds) {
    TestLaunch launch(trap_with, {4}, {128}, {kind, 0xabcd}, SG_KERNEL_NEEDS_FIBERS);
    const LaunchResult result = launch.run();
    CHECK(result.status == status);
    CHECK(result.address == 0xabcd);
    CHECK(result.warp == 2);
    CHECK(std::string(describe(status)).size() > 3);
  }
}

TEST_CASE("ud2 is an illegal instruction") {
  TestLaunch launch(illegal_instruction, {2}, {32});
  CHECK(launch.run().status == LaunchStatus::illegal_instruction);
}

TEST_CASE("a stack that is too deep is a fault, a deep one is not") {
  TestLaunch fits(deep, {}, {32}, {1000});
  CHECK(fits.run().ok());
  TestLaunch overflows(deep, {}, {32}, {1000000});
  CHECK(overflows.run().status == LaunchStatus::stack_overflow);
}

TEST_CASE("warps that wait for different barriers are a deadlock, not a hang") {
  TestLaunch launch(cross_waiting, {}, {128}, {}, SG_KERNEL_NEEDS_FIBERS);
  CHECK(launch.run().status == LaunchStatus::deadlock);
}

TEST_CASE("a barrier in a kernel that did not announce it is refused") {
  TestLaunch launch(barrier_without_flag, {}, {64});
  CHECK(launch.run().status == LaunchStatus::illegal_instruction);
  TestLaunch one_warp(barrier_without_flag, {}, {32});
  CHECK(one_warp.run().ok());
}

TEST_CASE("a time limit ends endless kernels") {
  std::atomic<std::uint32_t> started{0};
  for (sg_kernel_fn kernel : {endless, endless_with_yield}) {
    TestLaunch launch(kernel, {8}, {64}, {address(&started)}, SG_KERNEL_NEEDS_FIBERS);
    launch.launch.timeout = std::chrono::milliseconds(50);
    CHECK(launch.run(2).status == LaunchStatus::timeout);
    CHECK(started.exchange(0) > 0);
  }
  TestLaunch quick(nothing, {8}, {64});
  quick.launch.timeout = std::chrono::milliseconds(10000);
  CHECK(quick.run().ok());
}

TEST_CASE("cancelling ends what runs and refuses what comes") {
  std::atomic<std::uint32_t> started{0};
  for (sg_kernel_fn kernel : {endless, endless_with_yield}) {
    CancelToken token;
    started = 0;
    TestLaunch launch(kernel, {8}, {64}, {address(&started)}, SG_KERNEL_NEEDS_FIBERS);
    launch.launch.cancel = &token;
    LaunchResult result;
    std::thread runner([&] { result = launch.run(2); });
    while (started == 0) std::this_thread::yield();
    token.cancel();
    runner.join();
    CHECK(result.status == LaunchStatus::cancelled);
    CHECK(token.cancelled());
    TestLaunch late(nothing, {}, {32});
    late.launch.cancel = &token;
    CHECK(late.run().status == LaunchStatus::cancelled);
  }
}

TEST_CASE("one block's fault ends the others") {
  std::atomic<std::uint32_t> started{0};
  TestLaunch launch(one_faults, {2}, {32}, {address(&started)});
  const LaunchResult result = launch.run(2);
  CHECK(result.status == LaunchStatus::illegal_address);
  CHECK(result.address == 0x1000);
}

// ThreadSanitizer maps shadow memory for every dropped fiber, and its children of a process with
// threads hang: with it these two cases say nothing.
#ifndef __SANITIZE_THREAD__
TEST_CASE("a thousand launches and as many faults leave nothing behind") {
  Hole hole;
  std::atomic<std::uint32_t> started{0};
  auto once = [&] {
    TestLaunch good(write_to_after_barrier, {2}, {128}, {0}, SG_KERNEL_NEEDS_FIBERS);
    REQUIRE(good.run().ok());
    TestLaunch bad(write_to_after_barrier, {8}, {128}, {address(hole.page)},
                   SG_KERNEL_NEEDS_FIBERS);
    REQUIRE(bad.run().status == LaunchStatus::illegal_address);
  };
  for (int i = 0; i < 20; ++i) once();
  const std::size_t maps = open_maps(), descriptors = open_descriptors();
  for (int i = 0; i < 1000; ++i) once();
  CHECK(open_maps() < maps + 100);  // allocators may map some, a leak would be thousands
  CHECK(open_descriptors() == descriptors);
}
#endif

TEST_CASE("a fault elsewhere in the program reaches the program's own handler") {
  TestLaunch warm(nothing, {}, {32});
  REQUIRE(warm.run().ok());  // our handlers are in place
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = &escape_handler;
  action.sa_flags = SA_NODEFER;
  sigaction(SIGSEGV, &action, &before);
  Hole hole;
  g_handled = 0;
  for (int i = 0; i < 3; ++i) {
    // Ours must be put over the program's again, and pass on what is not of a kernel.
    TestLaunch launch(write_to, {16}, {64}, {address(hole.page)});
    CHECK(launch.run().status == LaunchStatus::illegal_address);
    fault_and_escape();
    CHECK(g_handled == i + 1);
  }
  sigaction(SIGSEGV, &before, nullptr);
}

TEST_CASE("a fault of the program without a handler ends it as ever") {
  const pid_t child = fork();
  if (child == 0) {
    struct rlimit none {};
    setrlimit(RLIMIT_CORE, &none);
    for (int signal : {SIGSEGV, SIGBUS}) std::signal(signal, SIG_DFL);
    TestLaunch launch(nothing, {}, {32});
    if (!launch.run().ok()) _exit(3);
    fault_on_purpose();
    _exit(4);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGSEGV);
}

#ifndef __SANITIZE_THREAD__
TEST_CASE("a setting limits the time of launches that bring no limit") {
  struct Case {
    const char* setting;
    LaunchStatus endless;
  };
  // Without a limit the endless launch is ended by its own.
  for (const Case& one :
       {Case{"0.05", LaunchStatus::timeout}, Case{"1e9", LaunchStatus::cancelled},
        Case{"-1", LaunchStatus::cancelled}, Case{"x", LaunchStatus::cancelled}}) {
    CAPTURE(one.setting);
    const pid_t child = fork();  // settings are read once in a process
    if (child == 0) {
      setenv("HEADRACE_SOFTGPU_TIMEOUT", one.setting, 1);
      std::atomic<std::uint32_t> started{0};
      CancelToken token;
      TestLaunch launch(endless, {2, 1, 1}, {32, 1, 1}, {address(&started)});
      launch.launch.cancel = &token;
      std::thread canceller;
      if (one.endless == LaunchStatus::cancelled)
        canceller = std::thread([&] {
          while (started == 0) std::this_thread::yield();
          token.cancel();
        });
      const bool good = launch.run(1).status == one.endless;
      if (canceller.joinable()) canceller.join();
      _exit(good ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
}

TEST_CASE("a forked child has a runtime of its own") {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) {
      TestLaunch launch(nothing, {64}, {64});
      launch.run(2);
    }
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      Hole hole;
      TestLaunch launch(nothing, {64}, {64});
      TestLaunch bad(write_to, {64}, {64}, {address(hole.page)});
      const bool good = launch.run(2).ok() && bad.run(2).status == LaunchStatus::illegal_address;
      _exit(good ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  stop = true;
  busy.join();
}
#endif

TEST_CASE("a caller's signal mask, signal stack and rounding mode are its own afterwards") {
  sigset_t blocked, mask;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGSEGV);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  stack_t before{}, after{};
  sigaltstack(nullptr, &before);
  const unsigned rounding = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(rounding | 0x8040);  // flush to zero, denormals are zero
  Hole hole;
  TestLaunch launch(write_to, {16}, {64}, {address(hole.page)});
  CHECK(launch.run(1).status == LaunchStatus::illegal_address);
  CHECK((__builtin_ia32_stmxcsr() & 0xffc0) == ((rounding | 0x8040) & 0xffc0));
  __builtin_ia32_ldmxcsr(rounding);
  sigaltstack(nullptr, &after);
  CHECK(before.ss_sp == after.ss_sp);
  CHECK(before.ss_flags == after.ss_flags);
  pthread_sigmask(SIG_UNBLOCK, &blocked, &mask);
  CHECK(sigismember(&mask, SIGSEGV) == 1);
}

TEST_CASE("what is no kernel image is refused with the reason") {
  std::string error;
  CHECK(KernelImage::load("/nonexistent/kernel.so", error) == nullptr);
  CHECK(error.find("/nonexistent/kernel.so") != std::string::npos);
  CHECK(KernelImage::load("libm.so.6", error) == nullptr);
  CHECK(error.find("sgk_desc") != std::string::npos);
}
