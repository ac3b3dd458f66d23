// The worker's line to headraced (PROTOCOL.md §11): frames on a Unix socket. Asking waits for the
// answer; what the daemon says unasked (EndSession) is noticed on the way or by pump().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "common/clock.h"
#include "common/errors.h"
#include "common/framing.h"
#include "common/unique_fd.h"
#include "gen/messages.h"

namespace headrace::worker {

class BrokerClient {
 public:
  static Result<BrokerClient> connect(const std::string& path);

  // The answer, or why there is none; when the daemon refused, refusal() has its words and code.
  template <typename Reply, typename Request>
  Result<Reply> ask(const Request& request) {
    refusal_.reset();
    const std::uint32_t call = next_call_++;
    FrameWriter out;
    if (!out.add(Request::kType, request, 0, call)) return too_long();
    Frame frame;
    if (Result<void> got = exchange(out, call, frame); !got) return got.error();
    if (frame.header.type == protocol::Refuse::kType) return refused(frame);
    Reply reply;
    Reader reader(frame.payload);
    if (frame.header.type != Reply::kType || !Reply::decode(reader, reply)) return confused();
    return reply;
  }

  // Says something and does not wait; if the daemon is gone, so be it. An answer that still comes
  // is dropped.
  template <typename Message>
  void tell(const Message& message, bool answered = false) {
    FrameWriter out;
    if (out.add(Message::kType, message, 0, answered ? next_call_++ : 0)) std::ignore = send(out);
  }

  // Reads what is there; call when fd() can be read. False: the daemon is gone.
  bool pump();

  bool alive() const { return static_cast<bool>(socket_); }
  int fd() const { return socket_.get(); }
  const std::optional<protocol::Refuse>& refusal() const { return refusal_; }
  // Set once the daemon has ended this worker's session.
  const std::optional<protocol::EndSession>& ended() const { return ended_; }

 private:
  explicit BrokerClient(UniqueFd socket) : socket_(std::move(socket)), in_(max_payload_v1) {}

  Result<void> exchange(const FrameWriter& out, std::uint32_t call, Frame& frame);
  Result<void> send(const FrameWriter& out);
  Result<void> receive(Deadline deadline);  // some bytes into in_
  bool unasked(const Frame& frame);
  Error gone(const std::string& why);
  Error refused(const Frame& frame);
  Error confused();
  static Error too_long();

  UniqueFd socket_;
  FrameReader in_;
  std::uint32_t next_call_ = 1;
  std::optional<protocol::Refuse> refusal_;
  std::optional<protocol::EndSession> ended_;
};

}  // namespace headrace::worker
