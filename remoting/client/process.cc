#include "client/process.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <utility>

#include "client/devices.h"
#include "client/export_hooks.h"
#include "common/log.h"
#include "common/session_file.h"

namespace headrace::client {
namespace {

constexpr std::uint64_t goodbye_ms = 500;

enum class Phase : std::uint32_t {
  wiped = 0,  // what a forked child finds: the kernel clears the page
  ready = 1,
  ended = 2,
};

// In a page that fork clears: a child of an initialised process sees `wiped`. Null before cuInit,
// so that a child forked before cuInit starts afresh.
std::atomic<std::atomic<std::uint32_t>*> g_phase{nullptr};

// All below is written once under g_mutex, and never freed.
std::atomic<Process*> g_process{nullptr};
CUresult g_failure = CUDA_SUCCESS;
std::atomic<bool> g_failed{false};  // the first attempt did not get as far as a process
std::mutex& init_mutex() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}

std::atomic<std::uint32_t>* make_phase_page() {
  const std::size_t size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  if (madvise(page, size, MADV_WIPEONFORK) != 0) {
    munmap(page, size);
    return nullptr;
  }
  return new (page) std::atomic<std::uint32_t>(static_cast<std::uint32_t>(Phase::ready));
}

const FileLog& log_file() {
  static const FileLog* const log = [] {
    const char* path = getenv("HEADRACE_LOG");
    if (path == nullptr || *path == '\0') return new FileLog;
    Result<FileLog> opened = FileLog::open(path);
    return opened ? new FileLog(opened.take()) : new FileLog;
  }();
  return *log;
}

CUresult result_of(const Error& error) {
  switch (error.kind) {
    case ErrorKind::not_permitted:
      return CUDA_ERROR_NOT_PERMITTED;
    case ErrorKind::version:
    case ErrorKind::protocol:
      return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    case ErrorKind::not_enough:
      return CUDA_ERROR_OUT_OF_MEMORY;
    default:
      return connection_lost_error;
  }
}

std::string program_name() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  if (size <= 0) return "unknown";
  const std::string_view whole(path, static_cast<std::size_t>(size));
  return std::string(whole.substr(whole.rfind('/') + 1).substr(0, 256));
}

CUresult start() {
  const char* path = getenv("HEADRACE_SESSION");
  if (path == nullptr || *path == '\0') {
    log_line("no reservation: HEADRACE_SESSION is not set; start the program with 'headrace run'");
    return CUDA_ERROR_NO_DEVICE;
  }
  Result<SessionFile> session = read_session_file(path);
  if (!session) {
    log_line("cannot use the session file: " + session.error().text + ". " + session.error().hint);
    return CUDA_ERROR_NO_DEVICE;
  }
  protocol::Attached attached;
  Result<std::unique_ptr<Connection>> connection = Connection::open(
      *session, program_name(), [](const std::string& line) { log_line(line); }, attached);
  if (!connection) {
    const Error& error = connection.error();
    log_line("cannot attach to " + session->server.text() + ": " + error.text +
             (error.hint.empty() ? "" : ". " + error.hint));
    return result_of(error);
  }
  std::unique_ptr<Process> made = std::make_unique<Process>();
  made->connection = connection.take();
  made->connection->set_unasked(*made);
  made->driver_version = std::min(implemented_version, attached.driver_version);
  make_devices(attached, getenv("CUDA_VISIBLE_DEVICES"), *made);
  log_line("attached to " + session->server.text() + ": " + std::to_string(made->devices.size()) +
           " device(s)");
  if (made->devices.empty()) {  // as CUDA's driver, which is not initialised then
    made->connection->say_goodbye(goodbye_ms);
    return CUDA_ERROR_NO_DEVICE;
  }
  std::atomic<std::uint32_t>* const page = make_phase_page();
  if (page == nullptr) {
    log_line("this kernel has no MADV_WIPEONFORK (Linux 4.14)");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  made->connection->set_unasked(*made);
  g_process.store(made.release(), std::memory_order_release);
  g_phase.store(page, std::memory_order_release);
  return CUDA_SUCCESS;
}

// Runs when the process ends or the library is unloaded. Threads of the program may still be inside
// a call; nothing is freed.
[[gnu::destructor]] void end() {
  std::atomic<std::uint32_t>* const page = g_phase.load(std::memory_order_acquire);
  std::uint32_t ready = static_cast<std::uint32_t>(Phase::ready);
  if (page == nullptr ||
      !page->compare_exchange_strong(ready, static_cast<std::uint32_t>(Phase::ended))) {
    return;
  }
  try {
    g_process.load()->connection->say_goodbye(goodbye_ms);
  } catch (...) {  // there is nobody to tell
  }
}

}  // namespace

namespace {

CUresult phase_state() {
  const std::atomic<std::uint32_t>* const page = g_phase.load(std::memory_order_acquire);
  if (page == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  switch (static_cast<Phase>(page->load(std::memory_order_acquire))) {
    case Phase::ready:
      return CUDA_SUCCESS;
    case Phase::ended:
      return CUDA_ERROR_DEINITIALIZED;
    default:
      return CUDA_ERROR_NOT_INITIALIZED;
  }
}

}  // namespace

CUresult initialise() {
  if (g_phase.load(std::memory_order_acquire) != nullptr) {
    const CUresult state = phase_state();
    return state != CUDA_SUCCESS ? state : g_failure;
  }
  const std::lock_guard<std::mutex> lock(init_mutex());
  if (g_failed.load() || g_phase.load(std::memory_order_acquire) != nullptr) return g_failure;
  set_export_hooks();
  g_failure = start();
  g_failed.store(g_phase.load(std::memory_order_acquire) == nullptr);
  return g_failure;
}

CUresult library_state() {
  const CUresult state = phase_state();
  if (state != CUDA_SUCCESS) return state;
  return Callbacks::running_here() ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

Process& process() { return *g_process.load(std::memory_order_acquire); }

void log_line(std::string_view text) { log_file().line(text); }

int reported_driver_version() {
  return phase_state() == CUDA_SUCCESS ? process().driver_version : implemented_version;
}

}  // namespace headrace::client
