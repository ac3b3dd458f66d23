#include "client/remote.h"

#include <cstdlib>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>

#include "client/per_thread.h"
#include "client/streams.h"
#include "client/thread_state.h"

namespace headrace::client {
namespace {

constexpr std::size_t max_cached = 4096;  // answers; beyond it the cache starts anew

struct Cache {
  std::shared_mutex mutex;
  std::unordered_map<std::string, std::vector<std::uint8_t>> answers;
};

Cache& cache() {
  static Cache* const made = new Cache;  // used until the process is gone
  return *made;
}

std::string key_text(std::span<const std::uint8_t> key) {
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

// A context that such an error has hit answers with it until it is reset or destroyed.
bool destroys_context(CUresult error) {
  switch (error) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
      return true;
    default:
      return false;
  }
}

}  // namespace

CUresult enter() {
  if (const CUresult state = library_state(); state != CUDA_SUCCESS) return state;
  return process().connection->lost() ? connection_lost_error : CUDA_SUCCESS;
}

CUresult enter_context(Context*& context) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  const ThreadState& thread = ThreadState::of_this_thread();
  if (thread.contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  context = thread.contexts.back();
  if (!context->alive.load(std::memory_order_acquire)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return static_cast<CUresult>(context->sticky.load(std::memory_order_relaxed));
}

CUresult check_handle(HandleKind kind, std::uint64_t handle, std::uint64_t& id) {
  Process& here = process();
  id = handle;
  bool known = false;
  switch (kind) {
    case HandleKind::stream:
      return resolve_stream(reinterpret_cast<CUstream>(handle), id);
    case HandleKind::context:
      if (handle == 0) id = current_context_id();
      known = here.contexts.contains(id);
      return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    case HandleKind::event:
      known = here.events.contains(handle);
      break;
    case HandleKind::module:
      known = here.modules.contains(handle);
      break;
    case HandleKind::library:
      known = here.libraries.contains(handle);
      break;
    case HandleKind::function:
    case HandleKind::kernel:
      known = here.functions.contains(handle);
      break;
    default:
      // Kinds without shadow objects: the server's table decides.
      known = handle_kind(handle) == kind;
      break;
  }
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult to_wire_device(CUdevice ordinal, std::int32_t& wire) {
  const Device* const device = process().device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  wire = device->wire_ordinal;
  return CUDA_SUCCESS;
}

std::uint64_t current_context_id() {
  const ThreadState& thread = ThreadState::of_this_thread();
  return thread.contexts.empty() ? 0 : thread.contexts.back()->id;
}

bool trips_are_logged() {
  static const bool asked = [] {
    const char* value = getenv("HEADRACE_LOG_TRIPS");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return asked;
}

TripResult note_reply(std::uint64_t context, const ReplyHead& head) {
  const TripResult outcome{static_cast<CUresult>(head.result),
                           static_cast<CUresult>(head.deferred)};
  if (outcome.told() != CUDA_SUCCESS && (head.sticky || destroys_context(outcome.told()))) {
    if (const std::shared_ptr<Context> lost = process().contexts.find(context)) {
      int none = 0;
      lost->sticky.compare_exchange_strong(none, outcome.told());
    }
  }
  return outcome;
}

CUresult result_of(Connection::Sent sent) {
  switch (sent) {
    case Connection::Sent::ok:
      return CUDA_SUCCESS;
    case Connection::Sent::too_long:
      return CUDA_ERROR_INVALID_VALUE;
    default:
      return connection_lost_error;
  }
}

std::vector<std::uint8_t>& reply_buffer() {
  return per_thread<std::vector<std::uint8_t>, struct ReplyBuffer>();
}

bool find_cached(std::span<const std::uint8_t> key, std::vector<std::uint8_t>& fields) {
  Cache& answers = cache();
  const std::shared_lock<std::shared_mutex> lock(answers.mutex);
  const auto found = answers.answers.find(key_text(key));
  if (found == answers.answers.end()) return false;
  fields = found->second;
  return true;
}

void keep_cached(std::span<const std::uint8_t> key, std::span<const std::uint8_t> fields) {
  Cache& answers = cache();
  const std::unique_lock<std::shared_mutex> lock(answers.mutex);
  if (answers.answers.size() >= max_cached) answers.answers.clear();
  answers.answers.insert_or_assign(key_text(key),
                                   std::vector<std::uint8_t>(fields.begin(), fields.end()));
}

}  // namespace headrace::client
