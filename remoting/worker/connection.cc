#include "worker/connection.h"

#include <poll.h>

#include <cerrno>

#include "gen/messages.h"

namespace headrace::worker {
namespace {

constexpr std::uint64_t write_ms = 10'000;
constexpr std::uint64_t close_ms = 1'000;

std::string shortened(const std::string& text) { return text.substr(0, 500); }

std::string type_text(std::uint16_t type) {
  if (const protocol::MessageInfo* info = protocol::find_message(type)) {
    return std::string(info->name);
  }
  return "frame of type " + std::to_string(type);
}

}  // namespace

std::string Connection::fault(const Frame& frame, Phase phase) {
  if (frame.header.reply())
    return "a reply to call " + std::to_string(frame.header.call) + ", which nobody asked";
  if (!permitted(phase, frame.header.type)) {
    return type_text(frame.header.type) + " is not permitted in phase " + phase_name(phase);
  }
  const protocol::MessageInfo* info = protocol::find_message(frame.header.type);
  if (info != nullptr && info->answer != 0 && frame.header.call == 0) {
    return std::string(info->name) + " without a call number";
  }
  return "";
}

Result<Frame> Connection::next_frame(Phase phase, Deadline deadline, BrokerClient& broker,
                                     Ending& ending) {
  const auto ended = [&](Ending with) {
    ending = std::move(with);
    return Error{ErrorKind::closed, ending.text, ""};
  };
  for (;;) {
    Frame frame;
    switch (in_.next(frame)) {
      case FrameReader::Next::bad:
        return ended(Ending::protocol_error(in_.fault()));
      case FrameReader::Next::frame: {
        if (std::string why = fault(frame, phase); !why.empty()) {
          return ended(Ending::protocol_error(std::move(why)));
        }
        if (frame.header.type == protocol::Close::kType) return ended(client_closed(frame));
        if (frame.header.type == protocol::Pong::kType) continue;
        if (frame.header.type != protocol::Ping::kType) return frame;
        if (!answer_ping(frame, out_)) return ended(Ending::protocol_error("Ping does not decode"));
        if (!flush()) return ended(Ending::lost(tls_->failure().text));
        continue;
      }
      case FrameReader::Next::need_more:
        break;
    }
    const Io io = tls_->read_some(in_.space());
    if (io.status == IoStatus::ok) {
      in_.commit(io.bytes);
      continue;
    }
    if (io.status == IoStatus::closed) return ended(client_hung_up(in_));
    if (io.status == IoStatus::failed) return ended(Ending::lost(tls_->failure().text));
    pollfd fds[2] = {{tls_->fd(), POLLIN, 0}, {broker.fd(), POLLIN, 0}};
    const int ready = poll(fds, 2, deadline.poll_ms());
    if (ready == 0 && deadline.passed()) {
      return ended({Code::busy, "timeout",
                    std::string("nothing came in time in phase ") + phase_name(phase)});
    }
    if (ready > 0 && fds[1].revents != 0 && !broker.pump()) {
      return ended({Code::shutting_down, "daemon", "headraced is gone"});
    }
    if (broker.ended()) {
      return ended({static_cast<Code>(broker.ended()->code), "ended", broker.ended()->text});
    }
  }
}

bool Connection::refuse(const FrameHeader& to, Code code, const std::string& text,
                        const std::string& hint) {
  return refuse(
      to, protocol::Refuse{static_cast<std::uint16_t>(code), shortened(text), shortened(hint)});
}

bool Connection::refuse(const FrameHeader& to, const protocol::Refuse& refusal) {
  return answer(to, refusal);
}

bool Connection::flush() {
  const Deadline deadline = Deadline::after_ms(write_ms);
  while (!out_.empty()) {
    const std::span<const std::uint8_t> bytes = out_.pending();
    if (!tls_->write_all(bytes, deadline)) return false;
    out_.consume(bytes.size());
  }
  return true;
}

void Connection::close(const Ending& ending) {
  if (ending.tell_client) {
    // What was being sent may be cut in the middle of a frame by now, so this is a best effort, and
    // a client that does not read does not hold the worker.
    if (out_.add(protocol::Close::kType, protocol::Close{static_cast<std::uint16_t>(ending.code),
                                                         shortened(ending.text)})) {
      const std::span<const std::uint8_t> bytes = out_.pending();
      if (tls_->write_all(bytes, Deadline::after_ms(close_ms))) out_.consume(bytes.size());
    }
  }
  tls_->linger(Deadline::after_ms(ending.event == "lost" ? 0 : close_ms));
}

bool answer_ping(const Frame& frame, FrameWriter& out) {
  protocol::Ping ping;
  Reader reader(frame.payload);
  if (!protocol::Ping::decode(reader, ping)) return false;
  return out.add(protocol::Pong::kType, protocol::Pong{ping.cookie}, flag_reply, frame.header.call);
}

Ending client_closed(const Frame& frame) {
  protocol::Close close;
  Reader reader(frame.payload);
  if (!protocol::Close::decode(reader, close)) {
    return Ending::protocol_error("Close does not decode");
  }
  Ending ending = Ending::finished("the client is done");
  ending.tell_client = false;
  return ending;
}

Ending client_hung_up(const FrameReader& in) {
  if (in.idle()) return Ending::finished("the client closed the connection");
  return Ending::protocol_error("the client closed in the middle of a frame");
}

}  // namespace headrace::worker
