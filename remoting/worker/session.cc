#include "worker/session.h"

#include <algorithm>
#include <utility>

#include "worker/driver_output.h"

namespace headrace::worker {

namespace {

// Each costs the device memory that is in nobody's account.
constexpr std::size_t max_contexts = 128;

}  // namespace

bool destroys_context(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
      return true;
    default:
      return false;
  }
}

namespace {

// Calls after which the program may read what kernels have written.
bool waits(std::uint16_t type) {
  switch (type) {
    case calls::CuStreamSynchronize::kType:
    case calls::CuStreamQuery::kType:
    case calls::CuEventSynchronize::kType:
    case calls::CuEventQuery::kType:
    case calls::CuCtxSynchronize::kType:
    case calls::CuCtxSynchronize_v2::kType:
    case calls::CuMemcpyHtoDAsync_v2::kType:
    case calls::CuMemcpyDtoHAsync_v2::kType:
    case calls::CuMemcpyDtoDAsync_v2::kType:
    case calls::CuMemcpy3DAsync_v2::kType:
      return true;
    default:
      return false;
  }
}

}  // namespace

Session::Session(const DriverTable& driver, std::vector<SessionDevice> devices,
                 MemoryAccount& memory, FrameWriter& out, WaiterPool& pool,
                 std::uint32_t max_handles, std::uint64_t features)
    : driver_(driver),
      devices_(std::move(devices)),
      memory_(memory),
      out_(out),
      pool_(pool),
      features_(features),
      handles_(max_handles),
      marks_(driver),
      uploads_(driver, *this),
      downloads_(driver, *this),
      host_twins_(driver, *this),
      callbacks_(driver, *this),
      later_(*this),
      stream_frees_(*this) {}

Session::~Session() {
  callbacks_.abandon_all();  // or its contexts would wait for the client
  for (const auto& [handle, context] : contexts_) {
    if (context.primary) {
      driver_.cuDevicePrimaryCtxRelease_v2(devices_[context.device].device);
    } else {
      driver_.cuCtxDestroy_v2(context.context);
    }
  }
}

CUresult Session::enter() {
  if (entered_) return CUDA_SUCCESS;
  const CUresult result = driver_.cuCtxSetCurrent(current_.context);
  entered_ = result == CUDA_SUCCESS;
  return result;
}

CUresult Session::enter(const SessionContext& context) {
  entered_ = false;
  return driver_.cuCtxSetCurrent(context.context);
}

bool Session::find_object(HandleKind kind, std::uint64_t handle, std::uint64_t& object) {
  constexpr std::uint64_t last_own_stream = 2;  // null, legacy and per-thread are CUDA's own
  if (kind == HandleKind::stream && handle <= last_own_stream) {
    object = handle;
    return true;
  }
  if (kind == HandleKind::context) {
    const SessionContext* context = find_context(handle);
    if (context == nullptr) return false;
    object = reinterpret_cast<std::uint64_t>(context->context);
    return true;
  }
  const HandleTable::Entry* entry = handles_.find(kind, handle);
  if (entry == nullptr && kind == HandleKind::function) {
    entry = handles_.find(HandleKind::kernel, handle);  // CUDA takes one for the other
  }
  if (entry == nullptr) return false;
  object = entry->object;
  return true;
}

bool Session::find_device(std::int32_t ordinal, CUdevice& out) const {
  const SessionDevice* found = device_at(ordinal);
  if (found == nullptr) return false;
  out = found->device;
  return true;
}

const SessionDevice* Session::device_at(std::int32_t ordinal) const {
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= devices_.size()) return nullptr;
  return &devices_[static_cast<std::size_t>(ordinal)];
}

CUresult Session::adopt_object(HandleKind kind, std::uint64_t handle, std::uint64_t object) {
  if (handle_kind(handle) != kind || handle_serial(handle) == 0 || handles_.contains(handle)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (handles_.full()) return CUDA_ERROR_OUT_OF_MEMORY;
  // Images of a library, and its kernels, belong to no context.
  const bool free_of_context = kind == HandleKind::library || kind == HandleKind::kernel ||
                               kind == HandleKind::memory_pool || kind == HandleKind::link_state;
  handles_.add(handle,
               {object, free_of_context ? 0 : current_.handle, current_.device, 0, nullptr});
  return CUDA_SUCCESS;
}

void Session::forget(HandleKind kind, std::uint64_t handle) {
  if (const HandleTable::Entry* entry = handles_.find(kind, handle)) {
    if (kind == HandleKind::stream) ++ended_streams_[entry->context].count;
    drop_charge(*entry);
    handles_.remove(handle);
  }
}

std::uint64_t Session::ended_streams(std::uint64_t context) const {
  const auto found = ended_streams_.find(context);
  return found == ended_streams_.end() ? 0 : found->second.count;
}

bool Session::all_ended_are_done(std::uint64_t context) const {
  const auto found = ended_streams_.find(context);
  return found == ended_streams_.end() || found->second.done == found->second.count;
}

void Session::ended_are_done(std::uint64_t context, std::uint64_t count) {
  EndedStreams& ended = ended_streams_[context];
  ended.done = std::max(ended.done, std::min(count, ended.count));
}

void Session::drop_charge(const HandleTable::Entry& entry) {
  if (entry.charged != 0) memory_.give_back(entry.device, entry.charged);
}

void Session::charge_handle(std::uint64_t handle, unsigned device, std::uint64_t bytes) {
  HandleTable::Entry* entry = handles_.find(handle_kind(handle), handle);
  if (entry == nullptr) return memory_.give_back(device, bytes);
  entry->device = device;
  entry->charged = bytes;
}

void Session::belongs_to(std::uint64_t handle, const SessionContext& context) {
  if (HandleTable::Entry* entry = handles_.find(handle_kind(handle), handle)) {
    entry->context = context.handle;
  }
}

void Session::attach(std::uint64_t handle, std::shared_ptr<void> what) {
  if (HandleTable::Entry* entry = handles_.find(handle_kind(handle), handle)) {
    entry->attached = std::move(what);
  }
}

std::shared_ptr<void> Session::attached(std::uint64_t handle) {
  const HandleTable::Entry* entry = handles_.find(handle_kind(handle), handle);
  return entry == nullptr ? nullptr : entry->attached;
}

void Session::set_context(std::uint64_t handle) {
  SessionContext wanted;
  if (handle != 0) {
    if (const SessionContext* found = find_context(handle)) {
      wanted = *found;
    } else {
      keep(CUDA_ERROR_INVALID_CONTEXT);
    }
  }
  entered_ = entered_ && wanted.context == current_.context;
  current_ = wanted;
  named_ = handle;
}

const SessionContext* Session::find_context(std::uint64_t handle) const {
  const auto found = contexts_.find(handle);
  return found == contexts_.end() ? nullptr : &found->second;
}

std::vector<SessionContext> Session::primary_contexts(unsigned device) const {
  std::vector<SessionContext> all;
  for (const auto& [handle, context] : contexts_) {
    if (context.primary && context.device == device) all.push_back(context);
  }
  return all;
}

CUresult Session::adopt_context(const SessionContext& context) {
  if (handle_kind(context.handle) != HandleKind::context || handle_serial(context.handle) == 0 ||
      contexts_.contains(context.handle)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (handles_.full() || contexts_.size() >= max_contexts) return CUDA_ERROR_OUT_OF_MEMORY;
  SessionContext& adopted = contexts_[context.handle] = context;
  adopted.life = ++last_life_;
  // A primary context has one name for all its lives; the client does not name it again.
  if (context.handle == named_) {
    current_ = adopted;
    entered_ = false;
  }
  return CUDA_SUCCESS;
}

std::vector<CUstream> Session::streams_of(std::uint64_t context) const {
  std::vector<CUstream> streams;
  handles_.for_each(HandleKind::stream, [&](std::uint64_t, const HandleTable::Entry& entry) {
    if (entry.context == context) streams.push_back(reinterpret_cast<CUstream>(entry.object));
  });
  return streams;
}

void Session::drop_context(std::uint64_t handle) {
  callbacks_.abandon(handle);
  later_.drop_context(handle);
  stream_frees_.drop_context(handle);
  std::erase_if(limits_, [&](const auto& one) {
    if (one.first.first != handle) return false;
    memory_.give_back(one.second.device, one.second.charged);
    return true;
  });
  handles_.remove_context(handle, [this](const HandleTable::Entry& entry) { drop_charge(entry); });
  std::erase_if(allocations_, [&](const auto& one) {
    if (one.second.context != handle) return false;
    memory_.give_back(one.second.device, one.second.charged);
    return true;
  });
  marks_.drop_context(handle);
  uploads_.drop_context(handle);
  downloads_.drop_context(handle);
  host_twins_.drop_context(handle);
  ended_streams_.erase(handle);
  entered_ = false;
  contexts_.erase(handle);
  if (current_.handle == handle) current_ = SessionContext{};
}

void Session::add_allocation(CUdeviceptr address, const Allocation& allocation) {
  allocations_[address] = allocation;
}

const Allocation* Session::find_allocation(CUdeviceptr address) const {
  const auto found = allocations_.find(address);
  return found == allocations_.end() ? nullptr : &found->second;
}

Allocation Session::take_allocation(CUdeviceptr address) {
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return {};
  const Allocation taken = found->second;
  allocations_.erase(found);
  return taken;
}

bool Session::charge_limit(CUlimit limit, std::uint64_t at_first, std::uint64_t bytes) {
  Limit& kept = limits_.try_emplace({current_.handle, limit}, Limit{at_first, 0, current_.device})
                    .first->second;
  if (bytes > UINT64_MAX - memory_unit) return false;
  const std::uint64_t beyond =
      bytes > kept.at_first ? round_up(bytes - kept.at_first, memory_unit) : 0;
  if (beyond > kept.charged && !memory_.charge(kept.device, beyond - kept.charged)) return false;
  if (beyond < kept.charged) memory_.give_back(kept.device, kept.charged - beyond);
  kept.charged = beyond;
  return true;
}

void Session::when_memory_returns(std::function<void()> then) {
  if (stream_frees_.pending()) {
    stream_frees_.afterwards([this, then = std::move(then)] { later_.afterwards(then); });
  } else {
    later_.afterwards(std::move(then));
  }
}

void Session::send_output() { DriverOutput::send(out_, has_feature(feature_output)); }

namespace {

// Calls at whose end a driver has written what kernels printed. Others do when they fail.
bool may_print(std::uint16_t type) {
  switch (type) {
    case calls::CuStreamSynchronize::kType:
    case calls::CuEventSynchronize::kType:
    case calls::CuCtxSynchronize::kType:
    case calls::CuCtxSynchronize_v2::kType:
    case calls::CuMemcpyDtoHAsync_v2::kType:
    case calls::CuMemcpy3DAsync_v2::kType:
    case calls::CuModuleLoadDataEx::kType:
    case calls::CuCtxDestroy_v2::kType:
    case calls::CuDevicePrimaryCtxRelease_v2::kType:
    case calls::CuDevicePrimaryCtxReset_v2::kType:
      return true;
    default:
      return false;
  }
}

bool is_failure(CUresult result) {
  return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
}

}  // namespace

bool Session::begin_wait(std::uint32_t number) { return waiting_.insert(number).second; }

void Session::answer_fields(const Waiting& to, CUresult result,
                            std::span<const std::uint8_t> fields) {
  if (to.number == 0) return keep(result);
  if (!host_twins_.any() || !waits(to.type) || result == CUDA_ERROR_NOT_READY) {
    return answer_now(to, result, fields);
  }
  host_twins_.publish([this, to, result] { answer_now(to, result, {}); });  // these have no fields
}

void Session::answer_now(const Waiting& to, CUresult result, std::span<const std::uint8_t> fields) {
  waiting_.erase(to.number);
  const CUresult deferred = std::exchange(deferred_, CUDA_SUCCESS);
  if (may_print(to.type) || is_failure(result) || is_failure(deferred)) send_output();
  const std::size_t place = out_.begin(to.type, flag_reply, to.number);
  calls::ReplyHeader header;
  header.result = result;
  header.deferred = deferred;
  header.sticky = destroys_context(result) || destroys_context(deferred) ? 1 : 0;
  header.write(out_.out());
  if (result == CUDA_SUCCESS) out_.out().raw(fields.data(), fields.size());
  out_.end(place);
}

void Session::keep(CUresult result) {
  if (deferred_ == CUDA_SUCCESS) deferred_ = result;
}

}  // namespace headrace::worker
