#include "common/tls_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "common/socket.h"
#include "common/tls_callbacks.h"

namespace headrace {
namespace {

// One read(2) may bring several records; a record is at most 16 KiB and some.
constexpr std::size_t read_buffer = 64 * 1024;

Error tls_setup_error(const std::string& what) {
  return Error{ErrorKind::internal, what + ": " + crypto_failure(), ""};
}

Error not_a_tls_peer() {
  return Error{ErrorKind::protocol, "the other side does not speak TLS 1.3 (plaintext?)", ""};
}

// The alert numbers of RFC 8446 §6 as OpenSSL reports them when the other side sent one.
Error explain_alert(int reason) {
  switch (reason) {
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
      return {ErrorKind::not_permitted,
              "the other side refused our certificate: another CA issued it",
              "use the certificate of this pool"};
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
      return {ErrorKind::not_permitted,
              "the other side refused our certificate: expired or not yet valid",
              "get a new certificate; check both clocks"};
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
      return {ErrorKind::not_permitted, "the other side refused our certificate: revoked",
              "ask the administrator"};
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
      return {ErrorKind::not_permitted,
              "the other side refused our certificate: it is not for this purpose", ""};
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
      return {ErrorKind::not_permitted, "the other side refused our certificate", ""};
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
      return {ErrorKind::not_permitted, "the other side wants a certificate and we showed none",
              ""};
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
      return {ErrorKind::version, "the other side refuses TLS 1.3", ""};
    case SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL:
      return {ErrorKind::version, "the other side does not offer this protocol (ALPN)",
              "is this the data port of a Headrace appliance of the same release?"};
    case SSL_R_TLSV1_ALERT_INTERNAL_ERROR:
      return {ErrorKind::unavailable, "the other side failed inside", "see its log"};
    default:
      return {ErrorKind::protocol, "", ""};
  }
}

}  // namespace

Result<TlsContext> TlsContext::client(const Identity& identity,
                                      const std::vector<Certificate>& trust) {
  return make(false, identity, trust);
}

Result<TlsContext> TlsContext::server(const Identity& identity,
                                      const std::vector<Certificate>& trust) {
  return make(true, identity, trust);
}

Result<TlsContext> TlsContext::make(bool server, const Identity& identity,
                                    const std::vector<Certificate>& trust) {
  if (trust.empty()) return Error{ErrorKind::invalid_input, "no CA certificate to trust", ""};
  TlsContext made;
  made.context_.reset(
      SSL_CTX_new_ex(crypto_context(), nullptr, server ? TLS_server_method() : TLS_client_method()),
      SSL_CTX_free);
  SSL_CTX* context = made.context_.get();
  if (context == nullptr) return tls_setup_error("cannot start TLS");
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, read_buffer);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                     TlsCallbacks::verify);
  SSL_CTX_set_verify_depth(context, 4);
  if (server) {
    SSL_CTX_set_client_hello_cb(context, TlsCallbacks::client_hello, nullptr);
    SSL_CTX_set_alpn_select_cb(context, TlsCallbacks::select_alpn, nullptr);
  }
  if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context,
                               "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:"
                               "TLS_CHACHA20_POLY1305_SHA256") != 1 ||
      SSL_CTX_set1_groups_list(context, "X25519:P-256") != 1) {
    return tls_setup_error("cannot set the TLS parameters");
  }
  if (SSL_CTX_use_certificate(context, identity.certificate.native()) != 1 ||
      SSL_CTX_use_PrivateKey(context, identity.key.native()) != 1) {
    return tls_setup_error("cannot use the certificate and its key");
  }
  for (const Certificate& one : identity.chain) {
    if (SSL_CTX_add1_chain_cert(context, one.native()) != 1) {
      return tls_setup_error("cannot use the certificate's chain");
    }
  }
  X509_STORE* store = SSL_CTX_get_cert_store(context);
  // A pinned issuing CA is an anchor by itself, also without its root.
  X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN);
  for (const Certificate& one : trust) {
    if (X509_STORE_add_cert(store, one.native()) != 1) {
      return tls_setup_error("cannot use the CA certificate");
    }
  }
  return made;
}

TlsStream::TlsStream(const TlsContext& context, UniqueFd socket, bool server)
    : context_(context), socket_(std::move(socket)), server_(server) {}

TlsStream::~TlsStream() { SSL_free(ssl_); }

Result<void> TlsStream::attach(const TlsContext& context) {
  if (Result<void> done = set_nonblocking(socket_.get()); !done) return done;
  ssl_ = SSL_new(context.native());
  BIO* bio = ssl_ == nullptr ? nullptr : new_socket_bio(&socket_, &transport_error_);
  if (bio == nullptr) return tls_setup_error("cannot start TLS");
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_app_data(ssl_, this);
  return {};
}

Result<std::unique_ptr<TlsStream>> TlsStream::client(const TlsContext& context, UniqueFd socket,
                                                     std::string_view host, std::string_view alpn) {
  std::unique_ptr<TlsStream> stream(new TlsStream(context, std::move(socket), false));
  if (Result<void> done = stream->attach(context); !done) return done.error();
  SSL_set_connect_state(stream->ssl_);
  if (!expect_host(stream->ssl_, host)) {
    return Error{ErrorKind::invalid_input, "cannot check for the server name " + std::string(host),
                 ""};
  }
  std::string offer(1, static_cast<char>(alpn.size()));
  offer += alpn;
  if (SSL_set_alpn_protos(stream->ssl_, reinterpret_cast<const unsigned char*>(offer.data()),
                          static_cast<unsigned>(offer.size())) != 0) {
    return tls_setup_error("cannot offer the protocol");
  }
  return stream;
}

Result<std::unique_ptr<TlsStream>> TlsStream::server(const TlsContext& context, UniqueFd socket) {
  std::unique_ptr<TlsStream> stream(new TlsStream(context, std::move(socket), true));
  if (Result<void> done = stream->attach(context); !done) return done.error();
  SSL_set_accept_state(stream->ssl_);
  return stream;
}

Result<void> TlsStream::handshake(Deadline deadline) {
  for (;;) {
    ERR_clear_error();
    const int returned = SSL_do_handshake(ssl_);
    if (returned == 1) break;
    const Io io = ended(returned, "TLS handshake");
    if (io.status == IoStatus::closed) {
      failure_ = {ErrorKind::closed, "TLS handshake: the other side closed the connection", ""};
      return failure_;
    }
    if (io.status == IoStatus::failed) return failure_;
    if (!wait_ready(fd(), io.status == IoStatus::want_read ? POLLIN : POLLOUT, deadline)) {
      failure_ = {ErrorKind::timed_out, "TLS handshake: not done in time", ""};
      return failure_;
    }
  }
  if (alpn().empty()) {
    failure_ = {ErrorKind::version, "TLS handshake: the server did not choose a protocol (ALPN)",
                "is this the data port of a Headrace appliance?"};
    return failure_;
  }
  handshaken_ = true;
  return {};
}

Io TlsStream::read_some(std::span<std::uint8_t> into) {
  std::size_t count = 0;
  ERR_clear_error();
  if (ssl_ != nullptr && SSL_read_ex(ssl_, into.data(), into.size(), &count) == 1) {
    return {IoStatus::ok, count};
  }
  return ended(0, "reading");
}

Io TlsStream::write_some(std::span<const std::uint8_t> from) {
  if (from.empty()) return {IoStatus::ok, 0};
  std::size_t count = 0;
  ERR_clear_error();
  if (ssl_ != nullptr && SSL_write_ex(ssl_, from.data(), from.size(), &count) == 1) {
    return {IoStatus::ok, count};
  }
  return ended(0, "writing");
}

bool TlsStream::has_pending() const { return ssl_ != nullptr && SSL_has_pending(ssl_) == 1; }

Result<void> TlsStream::read_all(std::span<std::uint8_t> into, Deadline deadline) {
  while (!into.empty()) {
    const Io io = read_some(into);
    if (io.status == IoStatus::ok) {
      into = into.subspan(io.bytes);
    } else if (io.status == IoStatus::closed) {
      return Error{ErrorKind::closed, "the other side closed the connection", ""};
    } else if (io.status == IoStatus::failed) {
      return failure_;
    } else if (!wait_ready(fd(), io.status == IoStatus::want_read ? POLLIN : POLLOUT, deadline)) {
      return Error{ErrorKind::timed_out, "no answer in time", ""};
    }
  }
  return {};
}

Result<void> TlsStream::write_all(std::span<const std::uint8_t> from, Deadline deadline) {
  while (!from.empty()) {
    const Io io = write_some(from);
    if (io.status == IoStatus::ok) {
      from = from.subspan(io.bytes);
    } else if (io.status == IoStatus::closed || io.status == IoStatus::failed) {
      return failure_;
    } else if (!wait_ready(fd(), io.status == IoStatus::want_read ? POLLIN : POLLOUT, deadline)) {
      return Error{ErrorKind::timed_out, "the other side does not read", ""};
    }
  }
  return {};
}

void TlsStream::say_done() {
  if (ssl_ == nullptr || said_done_ || !handshaken_ || !failure_.text.empty()) return;
  said_done_ = true;
  ERR_clear_error();
  SSL_shutdown(ssl_);
  ERR_clear_error();
}

void TlsStream::linger(Deadline deadline) {
  say_done();
  shutdown(fd(), SHUT_WR);
  std::uint8_t rest[4096];
  while (wait_ready(fd(), POLLIN, deadline)) {
    const ssize_t got = recv(fd(), rest, sizeof rest, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return;
  }
}

UniqueFd TlsStream::release_socket() {
  SSL_free(ssl_);
  ssl_ = nullptr;
  failure_ = {ErrorKind::closed, "the socket was handed over", ""};
  return std::move(socket_);
}

Bytes TlsStream::peer_certificate() const {
  X509* peer = ssl_ == nullptr ? nullptr : SSL_get1_peer_certificate(ssl_);
  if (peer == nullptr) return {};
  return Certificate(peer).der();
}

std::string TlsStream::alpn() const {
  const unsigned char* chosen = nullptr;
  unsigned size = 0;
  if (ssl_ != nullptr) SSL_get0_alpn_selected(ssl_, &chosen, &size);
  return size == 0 ? std::string() : std::string(reinterpret_cast<const char*>(chosen), size);
}

// What a call that did not succeed means. Reads the error queue, so nothing may come in between.
Io TlsStream::ended(int returned, const char* doing) {
  if (ssl_ == nullptr) return {IoStatus::failed, 0};
  switch (SSL_get_error(ssl_, returned)) {
    case SSL_ERROR_WANT_READ:
      return {IoStatus::want_read, 0};
    case SSL_ERROR_WANT_WRITE:
      return {IoStatus::want_write, 0};
    case SSL_ERROR_ZERO_RETURN:
      if (failure_.text.empty()) {
        failure_ = {ErrorKind::closed, "the other side closed the connection", ""};
      }
      return {IoStatus::closed, 0};
    default:
      break;
  }
  // A failed write is explained by the alert that a later read finds.
  if (failure_.text.empty() || failure_.kind == ErrorKind::closed) {
    Error found = explain(ERR_peek_error());
    if (!handshaken_) found.text = std::string(doing) + ": " + found.text;
    if (failure_.text.empty() || found.kind != ErrorKind::closed) failure_ = std::move(found);
  }
  ERR_clear_error();
  return {IoStatus::failed, 0};
}

Error TlsStream::explain(unsigned long code) const {
  if (!peer_fault_.empty()) {
    return {ErrorKind::not_permitted, peer_fault_,
            server_ ? "" : "check server name and CA in the configuration"};
  }
  if (!offer_fault_.empty()) return {ErrorKind::version, offer_fault_, ""};
  if (code == 0 || ERR_GET_LIB(code) == ERR_LIB_SYS) {
    if (transport_error_ == 0)
      return {ErrorKind::closed, "connection lost (closed without goodbye)", ""};
    return system_error(ErrorKind::closed, "connection lost", transport_error_);
  }
  const int reason = ERR_GET_REASON(code);
  if (const Error alert = explain_alert(reason); !alert.text.empty()) return alert;
  switch (reason) {
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
      return {ErrorKind::closed, "connection lost (closed without goodbye)", ""};
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return {ErrorKind::not_permitted, "the client showed no certificate", ""};
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_BAD_RECORD_TYPE:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_ENCRYPTED_LENGTH_TOO_LONG:
    case SSL_R_WRONG_SSL_VERSION:
      return not_a_tls_peer();
    case SSL_R_UNSUPPORTED_PROTOCOL:
      return {ErrorKind::version, "the other side does not speak TLS 1.3", ""};
    default: {
      const char* words = ERR_reason_error_string(code);
      return {ErrorKind::protocol, std::string("TLS: ") + (words != nullptr ? words : "failure"),
              ""};
    }
  }
}

}  // namespace headrace
