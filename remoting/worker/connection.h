// The client's connection: TLS, frames in, frames out. Blocking helpers for the phases before
// attaching; the attached phase drives the parts itself.
#pragma once

#include <memory>
#include <string>

#include "common/clock.h"
#include "common/errors.h"
#include "common/framing.h"
#include "common/tls_stream.h"
#include "worker/broker_client.h"
#include "worker/ending.h"
#include "worker/permits.h"

namespace headrace::worker {

class Connection {
 public:
  explicit Connection(std::unique_ptr<TlsStream> tls) : tls_(std::move(tls)) {}

  TlsStream& tls() { return *tls_; }
  FrameReader& in() { return in_; }
  FrameWriter& out() { return out_; }
  // What both sides speak, from Hello on (PROTOCOL.md §4).
  std::uint64_t features() const { return features_; }
  void set_features(std::uint64_t features) { features_ = features; }

  // The next frame that the phase permits. Pings are answered here. Ends when the daemon says so.
  Result<Frame> next_frame(Phase phase, Deadline deadline, BrokerClient& broker, Ending& ending);

  // Why a frame may not come now; empty if it may.
  static std::string fault(const Frame& frame, Phase phase);

  template <typename Message>
  bool answer(const FrameHeader& to, const Message& message) {
    return out_.add(Message::kType, message, flag_reply, to.call) && flush();
  }
  bool refuse(const FrameHeader& to, Code code, const std::string& text, const std::string& hint);
  // Answers with the daemon's words.
  bool refuse(const FrameHeader& to, const protocol::Refuse& refusal);

  // Writes everything out. False: the client is gone or does not read.
  bool flush();
  // Says why, then goodbye.
  void close(const Ending& ending);

 private:
  std::unique_ptr<TlsStream> tls_;
  FrameReader in_;
  FrameWriter out_;
  std::uint64_t features_ = 0;
};

// One Ping, answered with the same cookie; false if it does not decode.
bool answer_ping(const Frame& frame, FrameWriter& out);
// The client's Close as an ending.
Ending client_closed(const Frame& frame);
// The end of its direction without one, once all whole frames are taken.
Ending client_hung_up(const FrameReader& in);

}  // namespace headrace::worker
