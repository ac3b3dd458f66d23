#include "common/requests.h"

#include <tuple>

namespace headrace {

using namespace headrace::protocol;

namespace {

constexpr std::uint64_t connect_ms = 10'000;
constexpr std::uint64_t answer_ms = 60'000;
constexpr std::uint64_t close_ms = 1'000;

ErrorKind kind_of(std::uint16_t code) {
  switch (code) {
    case 2:
      return ErrorKind::version;
    case 3:
      return ErrorKind::not_permitted;
    case 4:
    case 6:
      return ErrorKind::busy;
    case 10:
      return ErrorKind::not_enough;
    case 11:
      return ErrorKind::not_found;
    case 12:
      return ErrorKind::invalid_input;
    default:
      return ErrorKind::internal;
  }
}

}  // namespace

Result<Requests> Requests::connect(const Endpoint& server, const Identity& identity,
                                   const std::vector<Certificate>& trust, std::uint8_t role,
                                   const std::string& build) {
  const Result<TlsContext> context = TlsContext::client(identity, trust);
  if (!context) return context.error();
  const Deadline deadline = Deadline::after_ms(connect_ms);
  Result<UniqueFd> socket = connect_tcp(server, deadline);
  if (!socket) return socket.error();
  Result<std::unique_ptr<TlsStream>> tls = TlsStream::client(*context, socket.take(), server.host);
  if (!tls) return tls.error();
  if (Result<void> shaken = (*tls)->handshake(deadline); !shaken) return shaken.error();
  Requests requests(tls.take());
  const Result<Welcome> welcome =
      requests.ask<Welcome>(Hello{protocol::version, protocol::version, 0, role, build});
  if (!welcome) return welcome.error();
  requests.in_.set_max_payload(welcome->max_payload);
  return requests;
}

void Requests::close() {
  FrameWriter out;
  if (out.add(Close::kType, Close{0, ""})) {
    std::ignore = tls_->write_all(out.pending(), Deadline::after_ms(close_ms));
  }
  tls_->say_done();
}

Error Requests::refusal(const Frame& frame) {
  Refuse refuse;
  Reader reader(frame.payload);
  if (frame.header.type == Refuse::kType && Refuse::decode(reader, refuse)) {
    return Error{kind_of(refuse.code), refuse.text, refuse.hint};
  }
  return Error{ErrorKind::protocol, "the server's answer does not make sense",
               "are client and appliance of the same release? headrace version"};
}

Result<Frame> Requests::exchange(FrameWriter& out, std::uint32_t call) {
  const Deadline deadline = Deadline::after_ms(answer_ms);
  // Even if writing fails, there may be an answer to read that says why.
  std::ignore = tls_->write_all(out.pending(), deadline);
  for (;;) {
    Frame frame;
    const FrameReader::Next next = in_.next(frame);
    if (next == FrameReader::Next::bad) return Error{ErrorKind::protocol, in_.fault(), ""};
    if (next == FrameReader::Next::frame) {
      if (frame.header.reply() && frame.header.call == call) return frame;
      Close close;
      Reader reader(frame.payload);
      if (frame.header.type == Close::kType && Close::decode(reader, close)) {
        return Error{kind_of(close.code), "the server closed: " + close.text, ""};
      }
      continue;
    }
    const std::span<std::uint8_t> space = in_.space();
    // Only what is there: the rest of the space need not come.
    if (Result<void> got = tls_->read_all(space.first(1), deadline); !got) return got.error();
    in_.commit(1);
    if (!tls_->has_pending()) continue;
    const Io more = tls_->read_some(in_.space());
    if (more.status == IoStatus::ok) in_.commit(more.bytes);
  }
}

}  // namespace headrace
