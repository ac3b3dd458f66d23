// A CUDA context: its streams, what it owns, and its sticky error. Plus streams and events, which
// are positions in the graph of operations (work.h).
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "remoting/softgpu/device/condition.h"
#include "remoting/softgpu/driver/kernel_output.h"
#include "remoting/softgpu/driver/work.h"
#include "remoting/softgpu/exec/executor.h"

namespace headrace::softgpu {

class Context;
class Device;
class Module;
class Runtime;

using ContextPtr = std::shared_ptr<Context>;

struct Stream {
  std::uint64_t handle = 0;  // 0: one of the default streams
  std::uint64_t id = 0;
  std::weak_ptr<Context> context;
  unsigned flags = 0;
  int priority = 0;
  bool legacy = false;
  bool per_thread = false;
  std::atomic<bool> dead{false};  // its context was reset
  OperationPtr last;              // guarded by the context's mutex
  // Attributes that are only remembered; guarded by the context's settings_mutex.
  CUaccessPolicyWindow access_window{};
  CUsynchronizationPolicy sync_policy = CU_SYNC_POLICY_AUTO;

  bool blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
};
using StreamPtr = std::shared_ptr<Stream>;

struct Event {
  // One recording. A new one replaces it, while waits for the old one go on.
  struct Record {
    OperationPtr operation;  // null: nothing was in its way when it was recorded
    std::atomic<std::int64_t> nanoseconds{0};
    bool done() const { return operation == nullptr || operation->done(); }
    void stamp();  // with the time that it is now
  };
  std::uint64_t handle = 0;
  std::weak_ptr<Context> context;
  unsigned flags = 0;
  std::mutex mutex;
  std::shared_ptr<Record> record;

  std::shared_ptr<Record> current() {
    std::lock_guard<std::mutex> guard(mutex);
    return record;
  }
};
using EventPtr = std::shared_ptr<Event>;

class Context : public std::enable_shared_from_this<Context> {
 public:
  Context(Runtime& runtime, Device& device, bool primary);

  std::uint64_t handle = 0;
  Runtime& runtime() { return runtime_; }
  Device& device() { return device_; }
  Condition& condition() { return condition_; }
  bool primary() const { return primary_; }
  std::uint64_t id() const { return id_; }

  // A primary context is inactive until it is retained, and again after its reset.
  bool active() const { return active_.load(std::memory_order_acquire); }
  void activate();
  // Ends all work, then frees everything the context owns. Running kernels are cancelled.
  void reset();

  // The first error that destroyed the context's work; every later call returns it.
  // What befell the device since the context was made counts, too.
  CUresult sticky();
  void fail(CUresult error);
  // The same for a call that is about to return it: what kernels said about it comes out first.
  CUresult reported_error();

  StreamPtr legacy_stream();
  StreamPtr thread_stream();  // of the calling thread
  StreamPtr create_stream(unsigned flags, int priority);
  void destroy_stream(const StreamPtr& stream);

  // Appends to a stream, behind everything that CUDA's implicit ordering puts before it. The body
  // is skipped once the context has failed, unless `always`. With CUDA_LAUNCH_BLOCKING=1 waits.
  // `held`: bytes that the body keeps. Waits while too much is under way.
  OperationPtr submit(const StreamPtr& stream, std::function<CUresult()> body, bool always = false,
                      const OperationPtr& also_after = nullptr, std::uint64_t held = 0);
  // Stops the stream until `over` says yes or the context has failed. Asked on the thread of the
  // watch (watch.h); it must neither throw nor block.
  void submit_wait(const StreamPtr& stream, std::function<bool()> over);
  // Everything that is given to any stream from now on comes after `operation`.
  void hold_until(const OperationPtr& operation);
  // Operations that a synchronous call on this stream has to wait for.
  std::vector<OperationPtr> pending(const StreamPtr& stream);
  bool idle(const StreamPtr& stream);
  void wait(const StreamPtr& stream);
  void wait_all();
  std::vector<OperationPtr> all_pending();

  CancelToken* cancel_token() { return cancel_.get(); }
  // Kernels' printf and assertions; waiting for work writes them out.
  OutputBuffer& output() { return output_; }
  // Of malloc in kernels, made when it is first wanted; null when the device has no room for it.
  DeviceHeap* heap();
  CUresult set_limit(CUlimit limit, std::size_t value);

  // Settings that are only remembered.
  std::mutex settings_mutex;
  unsigned flags = 0;
  unsigned api_version = 13000;
  CUfunc_cache cache_config = CU_FUNC_CACHE_PREFER_NONE;
  CUsharedconfig shared_config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  std::size_t limits[CU_LIMIT_MAX] = {};

 private:
  StreamPtr make_stream_locked(unsigned flags, int priority);
  void collect_locked(const Stream& stream, std::vector<OperationPtr>* out);
  void prune_locked();

  Runtime& runtime_;
  Device& device_;
  const bool primary_;
  const std::uint64_t id_;
  std::atomic<bool> active_{false};
  std::atomic<int> sticky_{CUDA_SUCCESS};
  Condition& condition_;             // of the device
  std::uint32_t failures_seen_ = 0;  // of the device, when the context was activated
  std::unique_ptr<CancelToken> cancel_;
  OutputBuffer output_;
  std::unique_ptr<DeviceHeap> heap_;  // guarded by settings_mutex

  std::mutex mutex_;
  StreamPtr legacy_;
  std::vector<StreamPtr> streams_;   // all others, also destroyed ones with work left
  std::vector<OperationPtr> holds_;  // what all later work comes after
};

}  // namespace headrace::softgpu
