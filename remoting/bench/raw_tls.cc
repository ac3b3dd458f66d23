#include "bench/raw_tls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "common/credentials.h"

namespace headrace::bench {
namespace {

constexpr std::size_t piece = 1 << 20;
constexpr std::uint8_t op_ping = 1, op_send = 2, op_receive = 3;

struct Command {
  std::uint64_t what;
  std::uint64_t size;
};

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "headrace-bench: raw TLS: %s\n", what);
  std::exit(1);
}

bool write_all(SSL* ssl, const void* bytes, std::size_t size) {
  const char* at = static_cast<const char*>(bytes);
  while (size != 0) {
    const int put = SSL_write(ssl, at, static_cast<int>(std::min(size, piece)));
    if (put <= 0) return false;
    at += put;
    size -= static_cast<std::size_t>(put);
  }
  return true;
}

bool read_all(SSL* ssl, void* bytes, std::size_t size) {
  char* at = static_cast<char*>(bytes);
  while (size != 0) {
    const int got = SSL_read(ssl, at, static_cast<int>(std::min(size, piece)));
    if (got <= 0) return false;
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

SSL* start(SSL_CTX* context, int socket, bool server) {
  const int one = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  // What the product prefers, too.
  SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256");
  SSL* ssl = SSL_new(context);
  SSL_set_fd(ssl, socket);
  const int done = server ? SSL_accept(ssl) : SSL_connect(ssl);
  if (done != 1) die("handshake");
  return ssl;
}

X509* self_signed(EVP_PKEY* key) {
  X509* made = X509_new();
  X509_set_version(made, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(made), 1);
  X509_gmtime_adj(X509_getm_notBefore(made), -3600);
  X509_gmtime_adj(X509_getm_notAfter(made), 86400);
  X509_set_pubkey(made, key);
  X509_sign(made, key, EVP_sha256());
  return made;
}

[[noreturn]] void serve(int listener) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const PrivateKey key = PrivateKey::generate().take();
  SSL_CTX* context = SSL_CTX_new(TLS_server_method());
  SSL_CTX_use_certificate(context, self_signed(key.native()));
  SSL_CTX_use_PrivateKey(context, key.native());
  SSL* ssl = start(context, accept(listener, nullptr, nullptr), true);
  std::vector<std::uint8_t> buffer(piece, 7);
  Command command;
  while (read_all(ssl, &command, sizeof command)) {
    std::uint64_t left = command.size;
    while (left != 0) {
      const std::size_t now = std::min<std::uint64_t>(left, piece);
      const bool done = command.what == op_receive ? write_all(ssl, buffer.data(), now)
                                                   : read_all(ssl, buffer.data(), now);
      if (!done) _exit(0);
      left -= now;
    }
    if (command.what == op_ping && !write_all(ssl, buffer.data(), command.size)) break;
    if (command.what == op_send && !write_all(ssl, buffer.data(), 1)) break;
  }
  _exit(0);
}

}  // namespace

RawTls::RawTls() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    die("cannot listen");
  }
  server_ = fork();
  if (server_ == 0) serve(listener);
  close(listener);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(socket, reinterpret_cast<sockaddr*>(&address), size) != 0) die("cannot connect");
  ssl_ = start(SSL_CTX_new(TLS_client_method()), socket, false);
}

RawTls::~RawTls() {
  kill(server_, SIGKILL);
  waitpid(server_, nullptr, 0);
}

void RawTls::command(std::uint8_t what, std::uint64_t size) {
  const Command command{what, size};
  if (!write_all(ssl_, &command, sizeof command)) die("cannot write");
}

// One write there and one back: the command and its bytes are one record.
void RawTls::ping(std::size_t bytes) {
  std::uint8_t record[4096] = {};
  const Command command{op_ping, bytes};
  std::memcpy(record, &command, sizeof command);
  bytes = std::min(bytes, sizeof record - sizeof command);
  if (!write_all(ssl_, record, sizeof command + bytes) || !read_all(ssl_, record, bytes)) {
    die("ping");
  }
}

void RawTls::send(std::span<const std::uint8_t> bytes) {
  command(op_send, bytes.size());
  std::uint8_t done = 0;
  if (!write_all(ssl_, bytes.data(), bytes.size()) || !read_all(ssl_, &done, 1)) die("send");
}

void RawTls::receive(std::span<std::uint8_t> bytes) {
  command(op_receive, bytes.size());
  if (!read_all(ssl_, bytes.data(), bytes.size())) die("receive");
}

}  // namespace headrace::bench
