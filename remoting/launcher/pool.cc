#include "launcher/pool.h"

namespace headrace::launcher {

using namespace headrace::protocol;

const char* const build_text = "headrace/0.1.0";

namespace {

constexpr std::uint64_t connect_ms = 10'000;
constexpr std::uint64_t answer_ms = 60'000;
constexpr std::uint8_t role_agent = 1;

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

Result<Pool> Pool::connect(const Config& config) {
  const Result<TlsContext> context = TlsContext::client(config.identity, config.trust);
  if (!context) return context.error();
  const Deadline deadline = Deadline::after_ms(connect_ms);
  Result<UniqueFd> socket = connect_tcp(config.server, deadline);
  if (!socket) return socket.error();
  Result<std::unique_ptr<TlsStream>> tls =
      TlsStream::client(*context, socket.take(), config.server.host);
  if (!tls) return tls.error();
  if (Result<void> shaken = (*tls)->handshake(deadline); !shaken) return shaken.error();
  Pool pool(tls.take());
  const Result<Welcome> welcome =
      pool.ask<Welcome>(Hello{protocol::version, protocol::version, 0, role_agent, build_text});
  if (!welcome) return welcome.error();
  pool.in_.set_max_payload(welcome->max_payload);
  return pool;
}

Result<ListReply> Pool::list() { return ask<ListReply>(ListRequest{}); }

Result<ReserveGrant> Pool::reserve(const ReserveRequest& request) {
  return ask<ReserveGrant>(request);
}

void Pool::close() {
  FrameWriter out;
  if (out.add(Close::kType, Close{0, ""})) {
    std::ignore = tls_->write_all(out.pending(), Deadline::after_ms(connect_ms));
  }
  tls_->say_done();
}

template <typename Reply, typename Request>
Result<Reply> Pool::ask(const Request& request) {
  const std::uint32_t call = next_call_++;
  FrameWriter out;
  if (!out.add(Request::kType, request, 0, call)) {
    return Error{ErrorKind::invalid_input, "a name in the request is too long", ""};
  }
  // Even if writing fails, there may be an answer to read that says why.
  const Result<void> sent = tls_->write_all(out.pending(), Deadline::after_ms(answer_ms));
  const Result<Frame> frame = receive(call);
  if (!frame) return frame.error();
  Reader reader(frame->payload);
  if (frame->header.type == Reply::kType) {
    Reply reply;
    if (Reply::decode(reader, reply)) return reply;
  } else if (frame->header.type == Refuse::kType) {
    Refuse refuse;
    if (Refuse::decode(reader, refuse))
      return Error{kind_of(refuse.code), refuse.text, refuse.hint};
  }
  return Error{ErrorKind::protocol, "the server's answer does not make sense",
               "are client and appliance of the same release? headrace version"};
}

Result<Frame> Pool::receive(std::uint32_t call) {
  const Deadline deadline = Deadline::after_ms(answer_ms);
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
  }
}

}  // namespace headrace::launcher
