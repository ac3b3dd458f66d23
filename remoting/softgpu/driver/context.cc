#include "remoting/softgpu/driver/context.h"

#include <cxxabi.h>

#include <algorithm>

#include "remoting/softgpu/device/log.h"
#include "remoting/softgpu/device/settings.h"
#include "remoting/softgpu/driver/runtime.h"

namespace headrace::softgpu {
namespace {

constexpr std::size_t kPrintBytes = std::size_t{1} << 20;

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> number{1};
  return number.fetch_add(1);
}

void set_default_limits(std::size_t* limits) {
  limits[CU_LIMIT_STACK_SIZE] = 1024;
  limits[CU_LIMIT_PRINTF_FIFO_SIZE] = kPrintBytes;
  limits[CU_LIMIT_MALLOC_HEAP_SIZE] = std::size_t{8} << 20;
  limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
  limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
  limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
  limits[CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = 0;
}

}  // namespace

Context::Context(Runtime& runtime, Device& device, bool primary)
    : runtime_(runtime),
      device_(device),
      primary_(primary),
      id_(next_number()),
      condition_(Condition::of(device.identity.index)),
      output_(kPrintBytes) {
  set_default_limits(limits);
}

void Context::activate() {
  std::lock_guard<std::mutex> guard(mutex_);
  if (active_) return;
  legacy_ = make_stream_locked(CU_STREAM_DEFAULT, 0);
  legacy_->legacy = true;
  streams_.clear();
  cancel_ = std::make_unique<CancelToken>();
  sticky_ = CUDA_SUCCESS;
  failures_seen_ = condition_.failures();
  condition_.add_context(1);
  active_ = true;
}

void Context::reset() {
  {
    std::lock_guard<std::mutex> guard(mutex_);
    if (!active_) return;
    active_ = false;
    legacy_->dead = true;
    for (const StreamPtr& stream : streams_) stream->dead = true;
  }
  // Work that has not started is skipped; a kernel that never ends is stopped.
  sticky_ = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  cancel_->cancel();
  wait_all();
  runtime_.forget_objects_of(*this);
  std::lock_guard<std::mutex> guard(mutex_);
  legacy_ = nullptr;
  streams_.clear();
  holds_.clear();
  std::lock_guard<std::mutex> settings_guard(settings_mutex);
  condition_.add_context(-1);
  heap_ = nullptr;  // its memory went with all other memory of the context
  output_.set_limit(kPrintBytes);
  set_default_limits(limits);
}

DeviceHeap* Context::heap() {
  std::lock_guard<std::mutex> guard(settings_mutex);
  if (heap_ == nullptr) {
    DeviceMemory* memory = device_.memory();
    const std::size_t bytes = limits[CU_LIMIT_MALLOC_HEAP_SIZE];
    const std::uint64_t base = memory != nullptr ? memory->allocate(bytes, handle, 0, true) : 0;
    if (base == 0) {
      log("no device memory for a heap of " + std::to_string(bytes) +
          " bytes; kernels get nothing from malloc");
      return nullptr;
    }
    heap_ = std::make_unique<DeviceHeap>(base, bytes);
  }
  return heap_.get();
}

CUresult Context::set_limit(CUlimit limit, std::size_t value) {
  std::lock_guard<std::mutex> guard(settings_mutex);
  // As CUDA: the heap keeps its size once a kernel has used it.
  if (limit == CU_LIMIT_MALLOC_HEAP_SIZE && heap_ != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (limit == CU_LIMIT_PRINTF_FIFO_SIZE) output_.set_limit(value);
  limits[limit] = value;
  return CUDA_SUCCESS;
}

CUresult Context::sticky() {
  const int known = sticky_.load(std::memory_order_acquire);
  if (known != CUDA_SUCCESS || condition_.failures() == failures_seen_) {
    return static_cast<CUresult>(known);
  }
  fail(static_cast<CUresult>(condition_.failure()));
  return static_cast<CUresult>(sticky_.load(std::memory_order_acquire));
}

void Context::fail(CUresult error) {
  int none = CUDA_SUCCESS;
  if (sticky_.compare_exchange_strong(none, error)) {
    log("context " + std::to_string(id_) + " failed with error " + std::to_string(error));
  }
}

CUresult Context::reported_error() {
  const CUresult error = sticky();
  if (error != CUDA_SUCCESS) output_.flush();
  return error;
}

StreamPtr Context::make_stream_locked(unsigned flags, int priority) {
  StreamPtr stream = std::make_shared<Stream>();
  stream->id = next_number();
  stream->context = weak_from_this();
  stream->flags = flags;
  stream->priority = priority;
  return stream;
}

StreamPtr Context::legacy_stream() {
  std::lock_guard<std::mutex> guard(mutex_);
  return legacy_;
}

StreamPtr Context::thread_stream() {
  ThreadState& thread = Runtime::thread();
  auto found = thread.streams.find(id_);
  if (found != thread.streams.end() && !found->second->dead) return found->second;
  std::lock_guard<std::mutex> guard(mutex_);
  if (!active_) return nullptr;
  prune_locked();
  StreamPtr stream = make_stream_locked(CU_STREAM_DEFAULT, 0);
  stream->per_thread = true;
  streams_.push_back(stream);
  thread.streams[id_] = stream;
  return stream;
}

StreamPtr Context::create_stream(unsigned flags, int priority) {
  std::lock_guard<std::mutex> guard(mutex_);
  if (!active_) return nullptr;
  prune_locked();
  StreamPtr stream = make_stream_locked(flags, priority);
  streams_.push_back(stream);
  return stream;
}

// Forgets streams that nobody can reach any more and that have no work left.
void Context::prune_locked() {
  std::erase_if(streams_, [](const StreamPtr& stream) {
    return stream.use_count() == 1 && (stream->last == nullptr || stream->last->done());
  });
}

void Context::destroy_stream(const StreamPtr&) {
  std::lock_guard<std::mutex> guard(mutex_);
  prune_locked();
}

void Context::collect_locked(const Stream& stream, std::vector<OperationPtr>* out) {
  auto add = [&](const OperationPtr& operation) {
    if (operation != nullptr && !operation->done()) out->push_back(operation);
  };
  add(stream.last);
  for (const OperationPtr& hold : holds_) add(hold);
  if (stream.legacy) {
    for (const StreamPtr& other : streams_) {
      if (other->blocking()) add(other->last);
    }
  } else if (stream.blocking() && legacy_ != nullptr) {
    add(legacy_->last);
  }
}

OperationPtr Context::submit(const StreamPtr& stream, std::function<CUresult()> body, bool always,
                             const OperationPtr& also_after, std::uint64_t held) {
  runtime_.engine().wait_for_room();
  ContextPtr self = shared_from_this();
  Operation::Body wrapped;
  if (body) {
    wrapped = [self, body = std::move(body), always] {
      if (!always && self->sticky() != CUDA_SUCCESS) return;
      CUresult result = CUDA_ERROR_UNKNOWN;
      try {
        result = body();
      } catch (abi::__forced_unwind&) {
        throw;         // a function of the program ends its thread
      } catch (...) {  // out of host memory: nothing may leave this thread
      }
      if (result != CUDA_SUCCESS) self->fail(result);
    };
  }
  OperationPtr operation;
  {
    std::lock_guard<std::mutex> guard(mutex_);
    std::vector<OperationPtr> after;
    collect_locked(*stream, &after);
    after.push_back(also_after);
    operation = runtime_.engine().submit(std::move(wrapped), stream->priority, after, held);
    stream->last = operation;
  }
  if (settings().launch_blocking) {
    operation->wait();
    output_.flush();
  }
  return operation;
}

void Context::submit_wait(const StreamPtr& stream, std::function<bool()> over) {
  runtime_.engine().wait_for_room();
  ContextPtr self = shared_from_this();
  Engine& engine = runtime_.engine();
  OperationPtr gate = engine.make_gate(stream->priority);
  Operation::Body begin = [self, gate, over = std::move(over)]() mutable {
    self->runtime_.watch().add(
        [self, over = std::move(over)] { return self->sticky() != CUDA_SUCCESS || over(); },
        [self, gate] { self->runtime_.engine().open(gate); });
  };
  std::lock_guard<std::mutex> guard(mutex_);
  std::vector<OperationPtr> after;
  collect_locked(*stream, &after);
  engine.submit(std::move(begin), stream->priority, after);
  stream->last = gate;
}

void Context::hold_until(const OperationPtr& operation) {
  std::lock_guard<std::mutex> guard(mutex_);
  std::erase_if(holds_, [](const OperationPtr& hold) { return hold->done(); });
  holds_.push_back(operation);
}

std::vector<OperationPtr> Context::pending(const StreamPtr& stream) {
  std::vector<OperationPtr> out;
  std::lock_guard<std::mutex> guard(mutex_);
  collect_locked(*stream, &out);
  return out;
}

bool Context::idle(const StreamPtr& stream) { return pending(stream).empty(); }

void Context::wait(const StreamPtr& stream) {
  for (const OperationPtr& operation : pending(stream)) operation->wait();
  output_.flush();
}

std::vector<OperationPtr> Context::all_pending() {
  std::vector<OperationPtr> out;
  std::lock_guard<std::mutex> guard(mutex_);
  auto add = [&](const StreamPtr& stream) {
    if (stream != nullptr && stream->last != nullptr && !stream->last->done()) {
      out.push_back(stream->last);
    }
  };
  add(legacy_);
  for (const StreamPtr& stream : streams_) add(stream);
  return out;
}

void Context::wait_all() {
  for (const OperationPtr& operation : all_pending()) operation->wait();
  output_.flush();
}

}  // namespace headrace::softgpu
