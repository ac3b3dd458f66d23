#include "worker/broker_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "common/socket.h"

namespace headrace::worker {
namespace {

// A daemon that does not answer for so long counts as gone: sessions go on without it.
constexpr std::uint64_t answer_ms = 10'000;

}  // namespace

Result<BrokerClient> BrokerClient::connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return Error{ErrorKind::invalid_input, "HEADRACE_BROKER is not the path of a Unix socket", ""};
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return system_error(ErrorKind::unavailable, "cannot reach headraced", errno);
  }
  if (Result<void> done = set_nonblocking(socket.get()); !done) return done.error();
  return BrokerClient(std::move(socket));
}

Result<void> BrokerClient::exchange(const FrameWriter& out, std::uint32_t call, Frame& frame) {
  if (Result<void> sent = send(out); !sent) return sent;
  const Deadline deadline = Deadline::after_ms(answer_ms);
  for (;;) {
    switch (in_.next(frame)) {
      case FrameReader::Next::bad:
        return gone(in_.fault());
      case FrameReader::Next::frame:
        if (frame.header.reply() && frame.header.call == call) return {};
        if (!unasked(frame)) return confused();
        continue;
      case FrameReader::Next::need_more:
        if (Result<void> got = receive(deadline); !got) return got;
    }
  }
}

Result<void> BrokerClient::send(const FrameWriter& out) {
  if (!socket_) return Error{ErrorKind::unavailable, "headraced is gone", ""};
  std::span<const std::uint8_t> left = out.pending();
  const Deadline deadline = Deadline::after_ms(answer_ms);
  while (!left.empty()) {
    const ssize_t put = ::send(socket_.get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (put >= 0) {
      left = left.subspan(static_cast<std::size_t>(put));
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!wait_ready(socket_.get(), POLLOUT, deadline)) return gone("it does not read");
    } else {
      return gone(std::strerror(errno));
    }
  }
  return {};
}

Result<void> BrokerClient::receive(Deadline deadline) {
  if (!wait_ready(socket_.get(), POLLIN, deadline)) return gone("it does not answer");
  const std::span<std::uint8_t> space = in_.space();
  const ssize_t got = ::recv(socket_.get(), space.data(), space.size(), 0);
  if (got > 0) {
    in_.commit(static_cast<std::size_t>(got));
  } else if (got == 0) {
    return gone("it closed the connection");
  } else if (errno != EAGAIN && errno != EINTR) {
    return gone(std::strerror(errno));
  }
  return {};
}

bool BrokerClient::unasked(const Frame& frame) {
  if (frame.header.reply()) return true;  // the answer to a tell()
  Reader reader(frame.payload);
  protocol::EndSession end;
  if (frame.header.type != protocol::EndSession::kType ||
      !protocol::EndSession::decode(reader, end)) {
    return false;
  }
  ended_ = std::move(end);
  return true;
}

bool BrokerClient::pump() {
  if (!socket_ || !receive(Deadline::after_ms(0))) return alive();
  Frame frame;
  for (;;) {
    switch (in_.next(frame)) {
      case FrameReader::Next::bad:
        gone(in_.fault());
        return false;
      case FrameReader::Next::need_more:
        return alive();
      case FrameReader::Next::frame:
        if (!unasked(frame)) {
          confused();
          return false;
        }
    }
  }
}

Error BrokerClient::gone(const std::string& why) {
  socket_.reset();
  return Error{ErrorKind::unavailable, "headraced is gone: " + why, ""};
}

Error BrokerClient::refused(const Frame& frame) {
  protocol::Refuse refuse;
  Reader reader(frame.payload);
  if (!protocol::Refuse::decode(reader, refuse)) return confused();
  Error error{refusal_kind(refuse.code), refuse.text, refuse.hint};
  refusal_ = std::move(refuse);
  return error;
}

Error BrokerClient::confused() { return gone("it sent a frame that was not expected"); }

Error BrokerClient::too_long() {
  return Error{ErrorKind::invalid_input, "a field is over its limit", ""};
}

}  // namespace headrace::worker
