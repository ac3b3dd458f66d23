#include "client/nvml/watch.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "common/log.h"
#include "common/requests.h"
#include "common/uuid.h"

namespace headrace::client::nvml {
namespace {

// One for each process. A forked child must not touch its parent's, whose connection and lock are
// the parent's own; it is left as it is.
struct Watch {
  const pid_t owner = getpid();
  std::mutex mutex;
  std::optional<Requests> requests;                // under mutex
  std::atomic<const Reservation*> known{nullptr};  // made once, lives as long as the process
};

std::atomic<Watch*> g_watch{nullptr};

Watch& watch() {
  for (;;) {
    Watch* const current = g_watch.load(std::memory_order_acquire);
    if (current != nullptr && current->owner == getpid()) return *current;
    Watch* expected = current;
    std::unique_ptr<Watch> made = std::make_unique<Watch>();
    if (g_watch.compare_exchange_strong(expected, made.get())) return *made.release();
  }
}

Result<Requests> connect() {
  const char* const path = getenv("HEADRACE_SESSION");
  if (path == nullptr || *path == '\0') {
    return Error{ErrorKind::not_found, "HEADRACE_SESSION is not set", "headrace run"};
  }
  return Requests::of_session(path, "headrace-nvml/0.1.0");
}

Device describe(const protocol::SliceState& from) {
  Device device;
  device.name = from.name;
  device.uuid = uuid_text(from.slice_uuid.data());
  device.pci_domain = from.pci_domain;
  device.pci_bus = from.pci_bus;
  device.pci_device = from.pci_device;
  char pci[32];
  std::snprintf(pci, sizeof pci, "%04X:%02X:%02X.0", static_cast<unsigned>(from.pci_domain),
                static_cast<unsigned>(from.pci_bus), static_cast<unsigned>(from.pci_device));
  device.pci = pci;
  device.major = from.compute_major;
  device.minor = from.compute_minor;
  return device;
}

void remember(Watch& own, const protocol::StatusReply& state) {
  if (own.known.load() != nullptr) return;
  std::unique_ptr<Reservation> made = std::make_unique<Reservation>();
  made->driver = state.driver;
  made->cuda_version = state.cuda_version;
  for (const protocol::SliceState& device : state.devices) {
    made->devices.push_back(describe(device));
  }
  own.known.store(made.release(), std::memory_order_release);
}

[[gnu::destructor]] void end() {
  Watch* const own = g_watch.load();
  if (own == nullptr || own->owner != getpid() || !own->mutex.try_lock()) return;
  try {
    if (own->requests) own->requests->close();
  } catch (...) {  // there is nobody to tell
  }
  // Stays locked: nothing is asked any more.
}

}  // namespace

void log_line(const std::string& text) {
  const char* const path = getenv("HEADRACE_LOG");
  if (path == nullptr || *path == '\0') return;
  if (const Result<FileLog> log = FileLog::open(path)) log->line("nvml: " + text);
}

Return ask_state(protocol::StatusReply& state) {
  Watch& own = watch();
  const std::lock_guard<std::mutex> lock(own.mutex);
  // The second try is on a new connection: the server closes one that was not used for a while.
  for (int tries = 0; tries < 2; ++tries) {
    const bool fresh = !own.requests;
    if (fresh) {
      Result<Requests> made = connect();
      if (!made) {
        log_line("cannot watch the reservation: " + made.error().text);
        break;
      }
      own.requests.emplace(made.take());
    }
    Result<protocol::StatusReply> reply =
        own.requests->ask<protocol::StatusReply>(protocol::StatusRequest{});
    if (reply) {
      state = reply.take();
      remember(own, state);
      return success;
    }
    own.requests.reset();
    if (fresh) {
      log_line("cannot watch the reservation: " + reply.error().text);
      break;
    }
  }
  return own.known.load() == nullptr ? driver_not_loaded : gpu_is_lost;
}

Return open_watch() {
  if (watch().known.load(std::memory_order_acquire) != nullptr) return success;
  protocol::StatusReply state;
  return ask_state(state);
}

const Reservation* reservation() {
  return open_watch() == success ? watch().known.load(std::memory_order_acquire) : nullptr;
}

}  // namespace headrace::client::nvml
