// TLS 1.3 with certificates on both sides over a non-blocking socket (PROTOCOL.md §1).
//
// A TlsStream is not thread-safe: callers hold a lock of their own around read_some() and
// write_some(), never around waiting for the socket. No call blocks except handshake() and the
// *_all() helpers. SIGPIPE is never raised.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/credentials.h"
#include "common/errors.h"
#include "common/unique_fd.h"

typedef struct ssl_ctx_st SSL_CTX;
typedef struct ssl_st SSL;

namespace headrace {

constexpr std::string_view alpn_data = "headrace/1";
constexpr std::string_view alpn_enroll = "headrace-enroll/1";

enum class IoStatus {
  ok,          // `bytes` were moved
  want_read,   // nothing moved: wait until the socket can be read
  want_write,  // nothing moved: wait until the socket can be written
  closed,      // the other side said that it is done (close_notify)
  failed,      // see failure()
};

struct Io {
  IoStatus status;
  std::size_t bytes;
};

// Settings of one end: shared by the streams made from it.
class TlsContext {
 public:
  // The other side must show a certificate that one of `trust` has issued, with the purpose of its
  // side. `identity` is what we show.
  static Result<TlsContext> client(const Identity& identity, const std::vector<Certificate>& trust);
  static Result<TlsContext> server(const Identity& identity, const std::vector<Certificate>& trust);

  SSL_CTX* native() const { return context_.get(); }

 private:
  static Result<TlsContext> make(bool server, const Identity&, const std::vector<Certificate>&);
  std::shared_ptr<SSL_CTX> context_;
};

class TlsStream {
 public:
  // Over a connected socket, which becomes non-blocking. `host` is checked against the server's
  // certificate: a name as a name, an address as its bytes (without brackets and zone).
  static Result<std::unique_ptr<TlsStream>> client(const TlsContext& context, UniqueFd socket,
                                                   std::string_view host,
                                                   std::string_view alpn = alpn_data);
  static Result<std::unique_ptr<TlsStream>> server(const TlsContext& context, UniqueFd socket);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // Blocks until done, failed, or past the deadline. With TLS 1.3 a client's handshake ends before
  // the server has looked at its certificate: a refusal arrives with the first read.
  Result<void> handshake(Deadline deadline);

  // A large read goes straight from the record layer to `into`, a large write from `from`.
  Io read_some(std::span<std::uint8_t> into);
  Io write_some(std::span<const std::uint8_t> from);
  // Bytes that were received but not read yet: poll(2) does not know of them.
  bool has_pending() const;

  // For ends that do one thing at a time. False: see failure().
  Result<void> read_all(std::span<std::uint8_t> into, Deadline deadline);
  Result<void> write_all(std::span<const std::uint8_t> from, Deadline deadline);

  // Says goodbye (close_notify), once, without waiting for an answer.
  void say_done();
  // Says goodbye, and reads what the other side still sends until it closes, too, or the deadline
  // is past: a socket that is closed with unread bytes in it resets the connection, and the last
  // words (an alert, a Close) may be lost with it.
  void linger(Deadline deadline);
  // The socket, taken away from TLS: it stays connected, and this stream cannot be used any more.
  UniqueFd release_socket();

  int fd() const { return socket_.get(); }
  const Error& failure() const { return failure_; }
  Bytes peer_certificate() const;  // DER; empty before the handshake
  std::string alpn() const;        // what both agreed on

 private:
  friend struct TlsCallbacks;
  TlsStream(const TlsContext& context, UniqueFd socket, bool server);
  Result<void> attach(const TlsContext& context);
  Io ended(int returned, const char* doing);
  Error explain(unsigned long code) const;

  TlsContext context_;  // keeps the settings alive
  UniqueFd socket_;
  SSL* ssl_ = nullptr;
  bool server_;
  bool handshaken_ = false;
  bool said_done_ = false;
  int transport_error_ = 0;  // errno of the socket's last failure
  std::string peer_fault_;   // why the peer's certificate was refused, in words
  std::string offer_fault_;  // why the peer's first message was refused
  Error failure_;
};

}  // namespace headrace
