#include "common/requests.h"

#include <tuple>

#include "common/credentials.h"
#include "common/session_file.h"

namespace headrace {

using namespace headrace::protocol;

namespace {

constexpr std::uint64_t connect_ms = 10'000;
constexpr std::uint64_t answer_ms = 60'000;
constexpr std::uint64_t close_ms = 1'000;

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

Result<Requests> Requests::of_session(const std::string& path, const std::string& build) {
  const Result<SessionFile> file = read_session_file(path);
  if (!file) return file.error();
  const Result<Identity> identity = identity_from_pem(file->certificates, file->key);
  if (!identity) return identity.error();
  const Result<std::vector<Certificate>> trust = certificates_from_pem(file->trust);
  if (!trust) return trust.error();
  return connect(file->server, *identity, *trust, role_session, build);
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
    return Error{refusal_kind(refuse.code), refuse.text, refuse.hint};
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
        return Error{refusal_kind(close.code), "the server closed: " + close.text, ""};
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
