#include "softgpu/exec/faults.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <cerrno>
#include <cstring>

namespace headrace::softgpu::exec {

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr std::size_t kSignalCount = sizeof(kSignals) / sizeof(kSignals[0]);
constexpr std::size_t kSignalStackBytes = 64 << 10;
constexpr unsigned kDefaultMxcsr = 0x1f80;  // round to nearest, no flushing, nothing trapped

// Handlers that were in place before ours. `oldest` is the one of the first installation: when a
// program puts its handler over ours, and we ours over that, `newest` calls us back, and the
// oldest is the end of the chain.
struct Previous {
  struct sigaction oldest, newest;
  bool installed;
};
Previous g_previous[kSignalCount];
pthread_mutex_t g_install_mutex = PTHREAD_MUTEX_INITIALIZER;

char g_kick_tag;  // its address marks our own kicks

// Initial-exec: looking them up from a signal handler must not allocate.
#define HEADRACE_HANDLER_TLS __attribute__((tls_model("initial-exec")))
HEADRACE_HANDLER_TLS thread_local ThreadState* t_running = nullptr;
HEADRACE_HANDLER_TLS thread_local void* t_chained_context = nullptr;
HEADRACE_HANDLER_TLS thread_local void* t_chained_frame = nullptr;

// The handler runs in the middle of anything, also of a fiber that is dropped by it: the
// sanitizers' books would not balance.
#if defined(__SANITIZE_THREAD__)
#define HEADRACE_IN_HANDLER __attribute__((no_sanitize_thread))
#else
#define HEADRACE_IN_HANDLER __attribute__((no_sanitize_address))
#endif

int signal_index(int signal) {
  for (std::size_t i = 0; i < kSignalCount; ++i)
    if (kSignals[i] == signal) return static_cast<int>(i);
  return 0;
}

void call_previous(const struct sigaction& action, int signal, siginfo_t* info, void* context) {
  if ((action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction != nullptr) {
    action.sa_sigaction(signal, info, context);
  } else if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) {
    action.sa_handler(signal);
  } else if (action.sa_handler == SIG_IGN && info->si_code <= 0) {
    return;  // sent, not raised: ignoring is what the program asked for
  } else {
    // The default action must happen: a raised fault repeats when the handler returns, a sent
    // signal is sent again and is delivered once the handler has returned.
    struct sigaction fallback;
    std::memset(&fallback, 0, sizeof(fallback));
    fallback.sa_handler = SIG_DFL;
    sigaction(signal, &fallback, nullptr);
    if (info->si_code <= 0) syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), signal);
  }
}

void chain(int signal, siginfo_t* info, void* context) {
  const Previous& previous = g_previous[signal_index(signal)];
  void* frame = __builtin_frame_address(0);
  // The same signal context, seen from deeper in the stack: the newest handler calls us back.
  const bool called_back = t_chained_context == context && frame < t_chained_frame;
  if (called_back) {
    call_previous(previous.oldest, signal, info, context);
    return;
  }
  t_chained_context = context;
  t_chained_frame = frame;
  call_previous(previous.newest, signal, info, context);
  t_chained_context = nullptr;
}

HEADRACE_IN_HANDLER LaunchStatus classify(const ThreadState& thread, int signal,
                                          const siginfo_t& info, std::uint64_t& address) {
  address = 0;
  if (signal == SIGILL || signal == SIGFPE) return LaunchStatus::illegal_instruction;
  // A non-canonical address raises a general protection fault, which does not tell it.
  if (info.si_code != SI_KERNEL) address = reinterpret_cast<std::uint64_t>(info.si_addr);
  const WarpSlot* slot = thread.current;
  if (signal == SIGSEGV && slot != nullptr && slot->fiber->in_guard(address)) {
    address = 0;
    return LaunchStatus::stack_overflow;
  }
  return LaunchStatus::illegal_address;
}

HEADRACE_IN_HANDLER void continue_in_scheduler(ThreadState& thread, void* context) {
  thread.in_kernel = 0;
  Fiber::announce_abandon(thread.thread_fiber);
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  registers[REG_RIP] = reinterpret_cast<greg_t>(&sg_fiber_abandon);
  registers[REG_RDI] = reinterpret_cast<greg_t>(thread.thread_fiber.saved_sp());
  registers[REG_RSP] = registers[REG_RDI];
}

HEADRACE_IN_HANDLER void handle(int signal, siginfo_t* info, void* context) {
  ThreadState* thread = t_running;
  if (info->si_code == SI_QUEUE && info->si_value.sival_ptr == &g_kick_tag) {
    if (thread == nullptr || thread->in_kernel == 0) return;
    if (!thread->stop->load(std::memory_order_acquire)) return;  // meant for a launch gone by
    if (thread->fault.status == LaunchStatus::ok) thread->fault = {LaunchStatus::cancelled, 0};
    continue_in_scheduler(*thread, context);
    return;
  }
  if (thread != nullptr && thread->in_kernel != 0 && info->si_code > 0) {
    std::uint64_t address = 0;
    const LaunchStatus status = classify(*thread, signal, *info, address);
    if (thread->fault.status == LaunchStatus::ok) thread->fault = {status, address};
    continue_in_scheduler(*thread, context);
    return;
  }
  chain(signal, info, context);
}

// Looked at before each launch: a program may have put its own handlers over ours since.
void ensure_handlers() {
  pthread_mutex_lock(&g_install_mutex);
  for (std::size_t i = 0; i < kSignalCount; ++i) {
    struct sigaction present;
    if (sigaction(kSignals[i], nullptr, &present) != 0) continue;
    if ((present.sa_flags & SA_SIGINFO) != 0 && present.sa_sigaction == &handle) continue;
    Previous& previous = g_previous[i];
    if (!previous.installed) previous.oldest = present;
    previous.newest = present;
    previous.installed = true;
    struct sigaction ours;
    std::memset(&ours, 0, sizeof(ours));
    ours.sa_sigaction = &handle;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&ours.sa_mask);
    sigaction(kSignals[i], &ours, nullptr);
  }
  pthread_mutex_unlock(&g_install_mutex);
}

}  // namespace

FaultScope::FaultScope(ThreadState& thread) : thread_(thread) {
  if (!thread.signal_stack.reserve(kSignalStackBytes)) return;
  ensure_handlers();
  stack_t stack{};
  stack.ss_sp = thread.signal_stack.data();
  stack.ss_size = thread.signal_stack.bytes();
  if (sigaltstack(&stack, &previous_stack_) != 0) return;
  sigset_t faults;
  sigemptyset(&faults);
  for (int signal : kSignals) sigaddset(&faults, signal);
  pthread_sigmask(SIG_UNBLOCK, &faults, &previous_mask_);
  previous_mxcsr_ = _mm_getcsr();
  _mm_setcsr(kDefaultMxcsr);
  thread.in_kernel = 0;
  thread.fault = {};
  t_running = &thread;
  ok_ = true;
}

FaultScope::~FaultScope() {
  if (!ok_) return;
  t_running = nullptr;
  thread_.current = nullptr;
  thread_.stop = nullptr;
  _mm_setcsr(previous_mxcsr_);
  pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
  sigaltstack(&previous_stack_, nullptr);
}

void kick(const ThreadState& thread) {
  siginfo_t info;
  std::memset(&info, 0, sizeof(info));
  info.si_signo = SIGSEGV;
  info.si_code = SI_QUEUE;
  info.si_pid = getpid();
  info.si_uid = getuid();
  info.si_value.sival_ptr = &g_kick_tag;
  syscall(SYS_rt_tgsigqueueinfo, getpid(), thread.tid, SIGSEGV, &info);
}

void reset_fault_lock_after_fork() { pthread_mutex_init(&g_install_mutex, nullptr); }

}  // namespace headrace::softgpu::exec
