// The data connection of a process (PROTOCOL.md §2, §7): one ordered stream of frames out, replies
// back in any order.
//
// Threads append frames to one buffer under `append_mutex_`. It is written when a reply is awaited,
// when it reaches flush_at_bytes, or by a flusher thread some tens of microseconds later. A thread
// that waits reads its own reply; with several waiters one of them reads for all. A writer that the
// socket blocks reads too, so that a server that waits for us to read cannot block both sides. The
// TLS lock is held around single reads and writes only, never around poll(2).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "common/errors.h"
#include "common/framing.h"
#include "common/session_file.h"
#include "common/tls_stream.h"
#include "gen/calls.h"
#include "gen/messages.h"

namespace headrace::client {

// After these the server has no current context where it was the one that ended.
template <typename Call>
inline constexpr bool ends_context = std::is_same_v<Call, calls::CuCtxDestroy_v2> ||
                                     std::is_same_v<Call, calls::CuDevicePrimaryCtxRelease_v2> ||
                                     std::is_same_v<Call, calls::CuDevicePrimaryCtxReset_v2>;

// What the final frame of a driver call's reply starts with (PROTOCOL.md §7.4).
struct ReplyHead {
  std::int32_t result = 0;
  std::int32_t deferred = 0;
  bool sticky = false;
};

// What the server says unasked. Called by whichever thread reads, which must not wait here.
class Unasked {
 public:
  virtual ~Unasked() = default;
  // False: it breaks the protocol.
  virtual bool change_host_memory(const protocol::HostChanges& changes) = 0;
  virtual void run(const protocol::CallbackRun& run) = 0;
  virtual void print(protocol::Output&& output) = 0;
  virtual void lost() = 0;
};

class Connection {
 public:
  // Connects, authenticates, says Hello and Attach. `log` gets one line when the connection is
  // lost.
  static Result<std::unique_ptr<Connection>> open(const SessionFile& session,
                                                  const std::string& program,
                                                  std::function<void(const std::string&)> log,
                                                  protocol::Attached& attached);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Once, before the first call. It outlives the connection.
  void set_unasked(Unasked& unasked) { unasked_.store(&unasked, std::memory_order_release); }
  // Whether the server speaks it, too (PROTOCOL.md §4).
  bool has_feature(std::uint64_t feature) const { return (features_ & feature) != 0; }

  enum class Sent { ok, lost, too_long };

  // Appends a call that awaits no reply. It acts on `context` (0: none, or any).
  template <typename Call>
  Sent send(std::uint64_t context, const Call& call) {
    std::size_t waiting = 0;
    {
      const std::lock_guard<std::mutex> lock(append_mutex_);
      if (lost()) return Sent::lost;
      put_context(context);
      if (!put_frame(call, 0)) return Sent::too_long;
      waiting = pending_.pending_bytes();
    }
    return after_append(waiting) ? Sent::ok : Sent::lost;
  }

  // The same for a message of a number and bytes, in two steps, for a caller that holds a lock of
  // its own meanwhile: the first never waits for the socket, and the second, without the lock, is
  // told what the first has said is waiting.
  Sent append_bytes(std::uint16_t type, std::uint64_t number, std::span<const std::uint8_t> bytes,
                    std::size_t& waiting);
  bool after_append(std::size_t waiting);

  // A call with a large field: `before` and `after` are the encoded fields around it
  // (`before` ends with its length). `data` is written from where it lies, without being copied
  // into the buffer, and may be changed once this returns.
  Sent send_around(std::uint64_t context, std::uint16_t type, std::span<const std::uint8_t> before,
                   std::span<const std::uint8_t> data, std::span<const std::uint8_t> after);

  // Where the data frames of a reply go: into memory that they fill exactly, or to the end of a
  // vector, up to a limit.
  struct Sink {
    std::span<std::uint8_t> exact;
    std::vector<std::uint8_t>* growing = nullptr;
    std::size_t limit = 0;
  };

  // Sends a call and waits for its reply. `fields` receives the payload of the final frame, and
  // keeps its memory for the next call.
  template <typename Call>
  Sent trip(std::uint64_t context, const Call& call, const Sink& sink, ReplyHead& head,
            std::vector<std::uint8_t>& fields) {
    Waiter waiter;
    waiter.sink = sink;
    waiter.payload.swap(fields);
    if (!take_slot(waiter)) return Sent::lost;
    bool fits = false;
    {
      const std::lock_guard<std::mutex> lock(append_mutex_);
      put_context(context);
      fits = put_frame(call, waiter.call);
      if constexpr (ends_context<Call>) last_context_ = 0;
    }
    if (!fits) {
      give_slot_back(waiter);
      return Sent::too_long;
    }
    return finish_trip(waiter, head, fields) ? Sent::ok : Sent::lost;
  }

  // Sends a message that is no call, at once.
  template <typename Message>
  bool tell(const Message& message) {
    {
      const std::lock_guard<std::mutex> lock(append_mutex_);
      if (lost() || !put_frame(message, 0)) return false;
    }
    return flush();
  }

  // Reads as long as `wanted` says so, on a thread that waits for no reply: whoever waits for one
  // reads for all, and this thread only when nobody does.
  void read_while(const std::function<bool()>& wanted);

  // Writes what is in the buffer.
  bool flush();
  bool lost() const { return lost_.load(std::memory_order_acquire); }
  // Ends the connection because the server broke the protocol.
  void break_off(const std::string& why) { mark_lost("protocol error: " + why); }
  // At the end of the process: writes what is left and says goodbye, within `milliseconds`. No
  // thread is waited for.
  void say_goodbye(std::uint64_t milliseconds);

 private:
  struct Waiter {
    std::uint32_t call = 0;
    bool done = false;  // under wait_mutex_
    Sink sink;
    std::size_t sunk = 0;
    std::vector<std::uint8_t> payload;
    std::condition_variable wake;
  };

  enum class Pump { progress, blocked, lost };

  Connection(std::unique_ptr<TlsStream> tls, const protocol::Welcome& welcome,
             std::function<void(const std::string&)> log);

  // Both under append_mutex_. A frame that does not fit its limits is not appended.
  void put_context(std::uint64_t context);
  template <typename Message>
  bool put_frame(const Message& message, std::uint32_t call) {
    const std::size_t place = pending_.begin(Message::kType, 0, call);
    try {
      if (message.encode(pending_.out())) {
        pending_.end(place);
        return true;
      }
    } catch (...) {  // no memory: half a frame must not be written
    }
    pending_.drop(place);
    return false;
  }
  bool write_outgoing();
  bool write_all(std::span<const std::uint8_t> bytes);
  void wait_for_room();

  bool take_slot(Waiter& waiter);
  void give_slot_back(Waiter& waiter);
  bool finish_trip(Waiter& waiter, ReplyHead& head, std::vector<std::uint8_t>& fields);
  void wait_for(Waiter& waiter);
  void read_until_done(Waiter& waiter);
  Pump pump();  // by the holder of the reader role
  Pump read_stream(std::span<std::uint8_t> into, std::size_t& got);
  bool start_frame();
  bool place_frame();
  bool find_room(Waiter& waiter, std::uint32_t length);
  bool finish_frame();
  bool handle_control();
  void answer_ping(std::uint64_t cookie);
  void pass_role_on();
  void wake_next_locked();

  void run_flusher();
  void wake_flusher();
  void mark_lost(const std::string& why);
  void mark_transport_lost();

  std::unique_ptr<TlsStream> tls_;
  std::function<void(const std::string&)> log_;
  const std::uint64_t features_;
  std::atomic<Unasked*> unasked_{nullptr};
  std::atomic<bool> lost_{false};
  std::mutex tls_mutex_;

  // Lock order: write_mutex_, then append_mutex_ or wait_mutex_, then tls_mutex_.
  std::mutex append_mutex_;
  FrameWriter pending_;
  std::uint64_t last_context_ = 0;

  std::mutex write_mutex_;
  FrameWriter outgoing_;

  std::mutex wait_mutex_;
  std::vector<Waiter*> slots_;  // by call number; 0 unused
  std::vector<std::uint32_t> free_calls_;
  std::condition_variable slot_freed_;
  std::vector<Waiter*> sleepers_;  // those waiting while another thread reads
  bool reader_active_ = false;

  // The frame being read; used by the holder of the reader role only.
  FrameReader reader_;
  FrameHeader header_;
  bool in_frame_ = false;
  Waiter* receiver_ = nullptr;  // null: a control message; written under wait_mutex_
  std::vector<std::uint8_t> control_;
  std::span<std::uint8_t> missing_;  // where the rest of the payload goes
  std::uint32_t max_payload_;

  std::mutex flusher_mutex_;
  std::condition_variable flusher_wake_;
  std::atomic<bool> flusher_awake_{false};
  std::atomic<bool> stopping_{false};
  std::thread flusher_;
};

}  // namespace headrace::client
