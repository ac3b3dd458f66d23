#include "softgpu/compiler/client.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>

#include "softgpu/compiler/connection.h"
#include "softgpu/compiler/helper_process.h"

namespace headrace::softgpu {

namespace {

constexpr std::int64_t kProtocol = 1;
constexpr std::size_t kIdleConnections = 4;

// Descriptors of all connections, so that a forked child can close its copies: a helper ends when
// its last client is gone, and a child that never asks anything must not look like one.
constexpr std::size_t kTracked = 256;
std::atomic<int> g_descriptors[kTracked];  // descriptor + 1; 0 = free

void track(int descriptor) {
  for (std::atomic<int>& place : g_descriptors) {
    int expected = 0;
    if (place.compare_exchange_strong(expected, descriptor + 1)) return;
  }
}

void untrack(int descriptor) {
  for (std::atomic<int>& place : g_descriptors) {
    int expected = descriptor + 1;
    if (place.compare_exchange_strong(expected, 0)) return;
  }
}

void close_in_child() {
  for (std::atomic<int>& place : g_descriptors) {
    const int tracked = place.exchange(0);
    if (tracked != 0) close(tracked - 1);
  }
}

void close_after_fork_once() {
  static const int registered = pthread_atfork(nullptr, nullptr, &close_in_child);
  (void)registered;
}

// A connection that is known to close_in_child().
class TrackedConnection {
 public:
  explicit TrackedConnection(int descriptor) : connection(descriptor) { track(descriptor); }
  ~TrackedConnection() { untrack(connection.descriptor()); }
  Connection connection;
};

JitErrorKind kind_of(std::string_view name) {
  constexpr std::pair<std::string_view, JitErrorKind> kNames[] = {
      {"invalid_ptx", JitErrorKind::invalid_ptx},
      {"unsupported_form", JitErrorKind::unsupported_form},
      {"unsupported_version", JitErrorKind::unsupported_version},
      {"unknown_kernel", JitErrorKind::unknown_kernel},
      {"limit", JitErrorKind::limit},
      {"no_space", JitErrorKind::no_space},
  };
  for (const auto& [text, kind] : kNames)
    if (text == name) return kind;
  return JitErrorKind::internal;
}

JitError error_of(const json::Value& header) {
  const json::Value& error = header["error"];
  return {kind_of(error["kind"].text()), error["message"].text(), error["line"].u32()};
}

JitError trouble(const char* text) { return {JitErrorKind::internal, text, 0}; }

KernelInfo kernel_of(const json::Value& value) {
  KernelInfo kernel;
  kernel.name = value["name"].text();
  for (const json::Value& pair : value["params"].items())
    if (pair.items().size() == 2)
      kernel.params.push_back({pair.items()[0].u32(), pair.items()[1].u32()});
  kernel.param_bytes = value["param_bytes"].u32();
  kernel.static_shared = value["static_shared"].u32();
  kernel.local_bytes = value["local_bytes"].u32();
  kernel.max_threads = value["max_threads"].u32();
  const std::vector<json::Value>& required = value["req_ntid"].items();
  for (std::size_t i = 0; i < 3 && i < required.size(); ++i) kernel.req_ntid[i] = required[i].u32();
  kernel.refused = value["refused"].text();
  return kernel;
}

ModuleInfo module_of(const json::Value& value) {
  ModuleInfo module;
  module.hash = value["hash"].text();
  module.version = value["version"].text();
  module.target = value["target"].text();
  for (const json::Value& kernel : value["kernels"].items())
    module.kernels.push_back(kernel_of(kernel));
  for (const json::Value& global : value["globals"].items())
    module.globals.push_back({global["name"].text(), global["offset"].size(), global["size"].size(),
                              global["align"].u32(), global["constant"].truth()});
  module.globals_bytes = value["globals_bytes"].size();
  module.globals_align = value["globals_align"].u32();
  for (const json::Value& relocation : value["relocations"].items())
    module.relocations.push_back({relocation["offset"].size(), relocation["target"].text(),
                                  relocation["addend"].integer(), relocation["generic"].truth()});
  return module;
}

}  // namespace

CompilerSettings CompilerSettings::from_environment() {
  CompilerSettings settings;
  if (const char* compiler = std::getenv("HEADRACE_SOFTGPU_COMPILER")) settings.compiler = compiler;
  if (const char* cache = std::getenv("HEADRACE_SOFTGPU_CACHE")) settings.cache = cache;
  return settings;
}

class CompilerClient::Impl {
 public:
  explicit Impl(CompilerSettings settings) : settings_(std::move(settings)) {
    close_after_fork_once();
  }
  ~Impl() {
    State* state = state_.load();
    if (state != nullptr && state->process == getpid()) delete state;
  }

  // The reply to a request, whose header may report an error of its own. A broken connection is
  // replaced once: the helper may have ended between two requests.
  JitResult<Reply> request(const std::string& header, std::string_view attachment) {
    std::string reason;
    for (int attempt = 0; attempt < 2; ++attempt) {
      std::unique_ptr<TrackedConnection> connection = attempt == 0 ? take_idle() : nullptr;
      if (!connection) connection = connect(reason);
      if (!connection) return JitError{JitErrorKind::compiler_not_found, reason, 0};
      Reply reply;
      if (connection->connection.ask(header, attachment, reply)) {
        give_back(std::move(connection));
        return reply;
      }
    }
    return trouble("the compile helper ended, or did not answer");
  }

  // A request about a kernel; its error, too, if the reply reports one.
  JitResult<Reply> request_about(const ModuleInfo& module, std::string_view kernel,
                                 std::string_view operation, std::string_view more) {
    std::string header = R"({"op":)" + json::quote(operation) + R"(,"module":)" +
                         json::quote(module.hash) + R"(,"kernel":)" + json::quote(kernel);
    if (!more.empty()) header.append(",").append(more);
    header += "}";
    JitResult<Reply> reply = request(header, {});
    if (reply.ok() && reply.value().header["error"]["kind"].text() == "unknown_module" &&
        module.text)  // another helper than the one that was told the text
      reply = request(header, *module.text);
    if (reply.ok() && !reply.value().header["ok"].truth()) return error_of(reply.value().header);
    return reply;
  }

 private:
  // Of one process. A forked child makes its own and leaves the parent's alone: its mutex may be
  // held, and its connections are closed already.
  struct State {
    const pid_t process = getpid();
    std::mutex mutex;
    std::vector<std::unique_ptr<TrackedConnection>> idle;
  };

  State& state() {
    State* present = state_.load();
    if (present != nullptr && present->process == getpid()) return *present;
    std::unique_ptr<State> fresh = std::make_unique<State>();
    if (state_.compare_exchange_strong(present, fresh.get())) return *fresh.release();
    return *present;
  }

  std::unique_ptr<TrackedConnection> take_idle() {
    State& own = state();
    std::lock_guard<std::mutex> lock(own.mutex);
    if (own.idle.empty()) return nullptr;
    std::unique_ptr<TrackedConnection> connection = std::move(own.idle.back());
    own.idle.pop_back();
    return connection;
  }

  void give_back(std::unique_ptr<TrackedConnection> connection) {
    State& own = state();
    std::lock_guard<std::mutex> lock(own.mutex);
    if (own.idle.size() < kIdleConnections) own.idle.push_back(std::move(connection));
  }

  std::unique_ptr<TrackedConnection> connect(std::string& reason) {
    const int descriptor = connect_to_helper(settings_, reason);
    if (descriptor < 0) return nullptr;
    std::unique_ptr<TrackedConnection> connection = std::make_unique<TrackedConnection>(descriptor);
    Reply reply;
    if (!connection->connection.ask(R"({"op":"hello"})", {}, reply)) {
      reason = "the compile helper ended before it answered; HEADRACE_SOFTGPU_LOG=FILE records why";
      return nullptr;
    }
    if (reply.header["protocol"].integer() != kProtocol) {
      reason =
          "the compile helper speaks another protocol version; end it, and start the one "
          "that belongs to this library";
      return nullptr;
    }
    return connection;
  }

  const CompilerSettings settings_;
  std::atomic<State*> state_{nullptr};
};

CompilerClient::CompilerClient(CompilerSettings settings)
    : impl_(std::make_unique<Impl>(std::move(settings))) {}
CompilerClient::~CompilerClient() = default;

JitResult<ModuleInfo> CompilerClient::inspect(std::string_view text) noexcept {
  try {
    while (!text.empty() && text.back() == '\0') text.remove_suffix(1);
    JitResult<Reply> reply = impl_->request(R"({"op":"inspect"})", text);
    if (!reply.ok()) return reply.error();
    const json::Value& header = reply.value().header;
    if (!header["ok"].truth()) return error_of(header);
    ModuleInfo module = module_of(header["module"]);
    module.image = std::move(reply.value().attachment);
    module.text = std::make_shared<const std::string>(text);
    return module;
  } catch (const std::exception&) {
    return trouble("out of memory");
  }
}

JitResult<std::string> CompilerClient::compile(const ModuleInfo& module, std::string_view kernel,
                                               std::optional<unsigned> opt) noexcept {
  const char* const kLevels[] = {R"("opt":0)", R"("opt":1)", R"("opt":2)", R"("opt":3)"};
  JitResult<KernelObject> object =
      compile(module, kernel, opt ? kLevels[std::min(*opt, 3u)] : R"("opt":null)");
  if (!object.ok()) return object.error();
  return std::move(object.value().path);
}

JitResult<KernelObject> CompilerClient::compile_in_tiers(const ModuleInfo& module,
                                                         std::string_view kernel) noexcept {
  return compile(module, kernel, R"("opt":null,"tiers":true)");
}

JitResult<KernelObject> CompilerClient::compile(const ModuleInfo& module, std::string_view kernel,
                                                std::string_view wanted) noexcept {
  try {
    JitResult<Reply> reply = impl_->request_about(module, kernel, "compile", wanted);
    if (!reply.ok()) return reply.error();
    const json::Value& answer = reply.value().header;
    return KernelObject{answer["path"].text(), answer["final"].truth()};
  } catch (const std::exception&) {
    return trouble("out of memory");
  }
}

JitResult<std::optional<std::string>> CompilerClient::better(const ModuleInfo& module,
                                                             std::string_view kernel) noexcept {
  try {
    JitResult<Reply> reply = impl_->request_about(module, kernel, "better", {});
    if (!reply.ok()) return reply.error();
    std::string path = reply.value().header["path"].text();
    if (path.empty()) return std::optional<std::string>();
    return std::optional<std::string>(std::move(path));
  } catch (const std::exception&) {
    return trouble("out of memory");
  }
}

}  // namespace headrace::softgpu
