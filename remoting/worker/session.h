// One client process's CUDA state in this worker: handles, contexts, memory, the first failure not
// yet told. Used from the network thread only; work that waits runs on the pool's threads and comes
// back as a completion.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/framing.h"
#include "common/ids.h"
#include "gen/calls.h"
#include "gen/driver_table.h"
#include "worker/blobs.h"
#include "worker/callbacks.h"
#include "worker/handle_table.h"
#include "worker/host_twins.h"
#include "worker/later.h"
#include "worker/memory_account.h"
#include "worker/stream_frees.h"
#include "worker/transfers.h"
#include "worker/virtual_memory.h"
#include "worker/waiter_pool.h"

namespace headrace::worker {

// A granted device: what the client calls ordinal k is element k.
struct SessionDevice {
  CUdevice device = 0;
  std::uint64_t limit = 0;  // bytes of the slice
};

struct SessionContext {
  std::uint64_t handle = 0;  // the client's name for it; 0: none
  CUcontext context = nullptr;
  unsigned device = 0;  // index into the grant
  bool primary = false;
  std::uint64_t life = 0;  // given at adoption, never the same twice
};

// Device memory handed out: what a free gives back.
struct Allocation {
  std::uint64_t charged = 0;
  unsigned device = 0;
  std::uint64_t context = 0;
};

// A call that is awaited.
struct Waiting {
  std::uint16_t type = 0;
  std::uint32_t number = 0;  // 0: nobody waits, the failure is kept
};

class Session {
 public:
  Session(const DriverTable& driver, std::vector<SessionDevice> devices, MemoryAccount& memory,
          FrameWriter& out, WaiterPool& pool, std::uint32_t max_handles, std::uint64_t features);
  ~Session();  // ends the client's contexts
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // ---- what generated dispatch uses
  const DriverTable& driver() const { return driver_; }
  // Makes the context of the last SetContext current in the driver.
  CUresult enter();
  // Makes another one current, until the next enter().
  CUresult enter(const SessionContext& context);
  template <typename Object>
  bool find(HandleKind kind, std::uint64_t handle, Object& out) {
    std::uint64_t object = 0;
    if (!find_object(kind, handle, object)) return false;
    if constexpr (std::is_pointer_v<Object>) {
      out = reinterpret_cast<Object>(object);
    } else {
      out = static_cast<Object>(object);
    }
    return true;
  }
  bool find_device(std::int32_t ordinal, CUdevice& out) const;
  // Keeps a new object under the client's name for it.
  template <typename Object>
  CUresult adopt(HandleKind kind, std::uint64_t handle, Object object) {
    if constexpr (std::is_pointer_v<Object>) {
      return adopt_object(kind, handle, reinterpret_cast<std::uint64_t>(object));
    } else {
      return adopt_object(kind, handle, static_cast<std::uint64_t>(object));
    }
  }
  void forget(HandleKind kind, std::uint64_t handle);

  // ---- contexts
  // A handle that names none leaves no context current, and the failure deferred.
  void set_context(std::uint64_t handle);
  const SessionContext& current() const { return current_; }
  const SessionDevice* device_at(std::int32_t ordinal) const;
  CUresult adopt_context(const SessionContext& context);
  // Everything that ended with a context, and the handle itself.
  void drop_context(std::uint64_t handle);
  const SessionContext* find_context(std::uint64_t handle) const;
  std::vector<SessionContext> primary_contexts(unsigned device) const;
  // A number that has changed means that what was made in the context is gone. 0: there is none.
  std::uint64_t life(std::uint64_t context) const {
    const auto found = contexts_.find(context);
    return found == contexts_.end() ? 0 : found->second.life;
  }
  std::vector<CUstream> streams_of(std::uint64_t context) const;
  // Counts the streams of a context that were destroyed, and those among them whose work is known
  // to be done: a stream finishes its work after its end, and only waiting for the whole context
  // waits for it.
  std::uint64_t ended_streams(std::uint64_t context) const;
  bool all_ended_are_done(std::uint64_t context) const;
  void ended_are_done(std::uint64_t context, std::uint64_t count);
  // The driver has changed the network thread's current context behind enter()'s back.
  void current_changed() { entered_ = false; }

  // ---- memory
  MemoryAccount& memory() { return memory_; }
  // Takes units of the current context's slice before the driver is asked.
  bool charge(std::uint64_t bytes) { return memory_.charge(current_.device, bytes); }
  void give_back(std::uint64_t bytes) { memory_.give_back(current_.device, bytes); }
  void add_allocation(CUdeviceptr address, const Allocation& allocation);
  const Allocation* find_allocation(CUdeviceptr address) const;
  // Forgets it; its charge is the caller's to give back.
  Allocation take_allocation(CUdeviceptr address);
  // Memory of the device that a limit of a context sets aside: beyond what the context had to begin
  // with it counts against the slice. False: the slice is used up.
  bool charge_limit(CUlimit limit, std::uint64_t at_first, std::uint64_t bytes);
  // Whether memory comes back once streams have gone on, and when it has.
  bool memory_returns() const { return later_.pending() || stream_frees_.pending(); }
  void when_memory_returns(std::function<void()> then);
  // Memory that ends with a handle (an image).
  void charge_handle(std::uint64_t handle, unsigned device, std::uint64_t bytes);

  // ---- more about handles
  // A handle that was adopted later than its context was current.
  void belongs_to(std::uint64_t handle, const SessionContext& context);
  // Something of ours that lives as long as a handle.
  void attach(std::uint64_t handle, std::shared_ptr<void> what);
  std::shared_ptr<void> attached(std::uint64_t handle);

  // ---- answers (PROTOCOL.md §7.4)
  // Whether a number may be used for a new call.
  bool begin_wait(std::uint32_t number);
  std::size_t waiting() const { return waiting_.size(); }
  void answer(const Waiting& to, CUresult result) { answer_fields(to, result, {}); }
  template <typename Reply>
  void answer(const Waiting& to, CUresult result, const Reply& reply) {
    Writer fields;
    if (result == CUDA_SUCCESS && to.number != 0 && !reply.encode(fields)) {
      result = CUDA_ERROR_UNKNOWN;
    }
    answer_fields(to, result, fields.view());
  }
  // The answer to a call that waits follows what kernels have done to shared host memory (§7.8).
  void answer_fields(const Waiting& to, CUresult result, std::span<const std::uint8_t> fields);
  // Keeps the first failure of calls that nobody awaits.
  void keep(CUresult result);

  Blobs& blobs() { return blobs_; }
  WaiterPool& pool() { return pool_; }
  FrameWriter& out() { return out_; }
  Marks& marks() { return marks_; }
  Uploads& uploads() { return uploads_; }
  Downloads& downloads() { return downloads_; }
  Callbacks& callbacks() { return callbacks_; }
  Later& later() { return later_; }
  StreamFrees& stream_frees() { return stream_frees_; }
  bool has_feature(std::uint64_t feature) const { return (features_ & feature) != 0; }
  // What kernels have printed goes ahead of what is sent next (§7.10).
  void send_output();
  VirtualMemory& virtual_memory() { return virtual_memory_; }
  HostTwins& host_twins() { return host_twins_; }

 private:
  bool find_object(HandleKind kind, std::uint64_t handle, std::uint64_t& object);
  CUresult adopt_object(HandleKind kind, std::uint64_t handle, std::uint64_t object);
  void drop_charge(const HandleTable::Entry& entry);
  void answer_now(const Waiting& to, CUresult result, std::span<const std::uint8_t> fields);

  const DriverTable& driver_;
  std::vector<SessionDevice> devices_;
  MemoryAccount& memory_;
  FrameWriter& out_;
  WaiterPool& pool_;
  const std::uint64_t features_;  // that both sides speak
  HandleTable handles_;
  std::map<std::uint64_t, SessionContext> contexts_;
  struct EndedStreams {
    std::uint64_t count = 0;
    std::uint64_t done = 0;
  };
  std::map<std::uint64_t, EndedStreams> ended_streams_;  // by context handle
  std::uint64_t last_life_ = 0;
  std::map<CUdeviceptr, Allocation> allocations_;
  SessionContext current_;
  std::uint64_t named_ = 0;  // by the last SetContext, whether it is there or not
  bool entered_ = false;     // current_ is current in the driver
  CUresult deferred_ = CUDA_SUCCESS;
  std::unordered_set<std::uint32_t> waiting_;
  Blobs blobs_;
  Marks marks_;
  Uploads uploads_;
  Downloads downloads_;
  VirtualMemory virtual_memory_;
  HostTwins host_twins_;
  Callbacks callbacks_;
  Later later_;
  StreamFrees stream_frees_;
  struct Limit {
    std::uint64_t at_first = 0;
    std::uint64_t charged = 0;
    unsigned device = 0;
  };
  std::map<std::pair<std::uint64_t, CUlimit>, Limit> limits_;  // by context handle
};

// Errors after which a context is lost: the flag `sticky` of replies.
bool destroys_context(CUresult result);

}  // namespace headrace::worker
