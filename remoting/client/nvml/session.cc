#include "client/nvml/session.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

#include "client/connection.h"
#include "client/devices.h"
#include "common/ids.h"
#include "common/log.h"
#include "common/session_file.h"
#include "gen/calls.h"

namespace headrace::client::nvml {
namespace {

struct Session {
  pid_t owner = 0;
  std::unique_ptr<Connection> connection;
  std::vector<Device> devices;
  int cuda_version = 0;
  std::mutex mutex;
  std::vector<bool> retained;  // under mutex: whose primary context we hold
};

std::atomic<Session*> g_session{nullptr};

void log_line(const std::string& text) {
  const char* const path = getenv("HEADRACE_LOG");
  if (path == nullptr || *path == '\0') return;
  if (const Result<FileLog> log = FileLog::open(path)) log->line("nvml: " + text);
}

Device describe(const protocol::Device& from) {
  Device device;
  device.name = from.name;
  device.uuid = uuid_text(from.uuid.data());
  device.pci_domain = from.pci_domain;
  device.pci_bus = from.pci_bus;
  device.pci_device = from.pci_device;
  char pci[32];
  std::snprintf(pci, sizeof pci, "%04X:%02X:%02X.0", static_cast<unsigned>(from.pci_domain),
                static_cast<unsigned>(from.pci_bus), static_cast<unsigned>(from.pci_device));
  device.pci = pci;
  device.total_memory = from.total_memory;
  for (const protocol::Pair& pair : from.attributes) {
    if (pair.key == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) device.major = pair.value;
    if (pair.key == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) device.minor = pair.value;
  }
  return device;
}

std::unique_ptr<Session> connect() {
  const char* const path = getenv("HEADRACE_SESSION");
  if (path == nullptr || *path == '\0') {
    log_line("no reservation: HEADRACE_SESSION is not set");
    return nullptr;
  }
  const Result<SessionFile> file = read_session_file(path);
  if (!file) {
    log_line("cannot use the session file: " + file.error().text);
    return nullptr;
  }
  protocol::Attached attached;
  Result<std::unique_ptr<Connection>> connection =
      Connection::open(*file, "nvml", log_line, attached);
  if (!connection) {
    log_line("cannot attach to " + file->server.text() + ": " + connection.error().text);
    return nullptr;
  }
  std::unique_ptr<Session> made = std::make_unique<Session>();
  made->owner = getpid();
  made->connection = connection.take();
  made->cuda_version = attached.driver_version;
  for (const protocol::Device& device : attached.devices) {
    made->devices.push_back(describe(device));
  }
  made->retained.resize(made->devices.size());
  return made;
}

// In a forked child the parent's session must not be touched; the child opens its own.
Session* usable_session() {
  Session* const session = g_session.load(std::memory_order_acquire);
  return session != nullptr && session->owner == getpid() ? session : nullptr;
}

template <typename Call>
bool ask(Session& session, std::uint64_t context, const Call& call, typename Call::Reply& reply) {
  ReplyHead head;
  std::vector<std::uint8_t> fields;
  if (session.connection->trip(context, call, {}, head, fields) != Connection::Sent::ok ||
      head.result != 0) {
    return false;
  }
  Reader reader(fields.data() + calls::ReplyHeader::size, fields.size() - calls::ReplyHeader::size);
  return Call::Reply::decode(reader, reply);
}

[[gnu::destructor]] void end() {
  if (Session* const session = usable_session()) {
    try {
      session->connection->say_goodbye(500);
    } catch (...) {  // there is nobody to tell
    }
  }
}

}  // namespace

Return open_session() {
  static std::mutex* const mutex = new std::mutex;
  const std::lock_guard<std::mutex> lock(*mutex);
  if (Session* const session = usable_session();
      session != nullptr && !session->connection->lost()) {
    return success;
  }
  // A lost one stays where it is: other threads may be inside it.
  std::unique_ptr<Session> made = connect();
  if (made == nullptr) return driver_not_loaded;
  g_session.store(made.release(), std::memory_order_release);
  return success;
}

const std::vector<Device>& devices() {
  static const std::vector<Device>* const none = new std::vector<Device>;
  const Session* const session = usable_session();
  return session == nullptr ? *none : session->devices;
}

int cuda_version() {
  const Session* const session = usable_session();
  return session == nullptr ? 0 : session->cuda_version;
}

Return memory_of(std::size_t index, Memory& memory) {
  Session* const session = usable_session();
  if (session == nullptr) return uninitialized;
  const std::lock_guard<std::mutex> lock(session->mutex);
  const std::uint64_t context = make_handle(HandleKind::context, index + 1);
  if (!session->retained[index]) {
    calls::CuDevicePrimaryCtxRetain retain;
    retain.pctx = context;
    retain.dev = static_cast<std::int32_t>(index);
    calls::CuDevicePrimaryCtxRetain::Reply nothing;
    if (!ask(*session, 0, retain, nothing)) return gpu_is_lost;
    session->retained[index] = true;
  }
  calls::CuMemGetInfo_v2::Reply reply;
  if (!ask(*session, context, calls::CuMemGetInfo_v2{}, reply)) return gpu_is_lost;
  memory.total = reply.total;
  memory.free = reply.free < reply.total ? reply.free : reply.total;
  memory.used = memory.total - memory.free;
  return success;
}

}  // namespace headrace::client::nvml
