// PROTOCOL.md §1: who gets through a handshake, and the words for those who do not.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "common/tls_stream.h"
#include "tiny_pki.h"

namespace headrace {
namespace {

using testing::CertificateWish;
using testing::TinyCa;

constexpr std::uint64_t patience_ms = 10'000;

struct Pair {
  UniqueFd client, server;
};

Pair socket_pair() {
  int fds[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

struct Outcome {
  std::string client;  // why the client's side failed; empty if it did not
  std::string server;
};

// A whole meeting: handshakes on both sides, one byte to the client, which reads it.
Outcome meet(const TlsContext& client_side, const TlsContext& server_side,
             std::string_view host = "127.0.0.1", std::string_view alpn = alpn_data) {
  Pair pair = socket_pair();
  Outcome outcome;
  std::thread server([&] {
    std::unique_ptr<TlsStream> stream =
        TlsStream::server(server_side, std::move(pair.server)).take();
    const Result<void> shaken = stream->handshake(Deadline::after_ms(patience_ms));
    if (!shaken) {
      outcome.server = shaken.error().text;
      return;
    }
    const std::uint8_t byte = 42;
    if (!stream->write_all({&byte, 1}, Deadline::after_ms(patience_ms))) {
      outcome.server = stream->failure().text;
    }
    stream->say_done();
  });
  {
    std::unique_ptr<TlsStream> stream =
        TlsStream::client(client_side, std::move(pair.client), host, alpn).take();
    const Result<void> shaken = stream->handshake(Deadline::after_ms(patience_ms));
    std::uint8_t byte = 0;
    if (!shaken) {
      outcome.client = shaken.error().text;
    } else if (Result<void> got = stream->read_all({&byte, 1}, Deadline::after_ms(patience_ms));
               !got) {
      outcome.client = got.error().text;
    } else {
      CHECK(byte == 42);
      CHECK(stream->alpn() == alpn_data);
      CHECK_FALSE(stream->peer_certificate().empty());
    }
  }
  server.join();
  return outcome;
}

bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

TEST_CASE("both sides with certificates of the pool get through") {
  const TinyCa ca;
  const TlsContext client = TlsContext::client(ca.identity(), ca.trust()).take();
  const TlsContext server = TlsContext::server(ca.server(), ca.trust()).take();
  for (const char* host : {"127.0.0.1", "localhost", "localhost."}) {
    const Outcome outcome = meet(client, server, host);
    CHECK(outcome.client == "");
    CHECK(outcome.server == "");
  }
}

TEST_CASE("a refused client certificate has a reason on both sides") {
  const TinyCa ca, other;
  const TlsContext server = TlsContext::server(ca.server(), ca.trust()).take();
  struct Case {
    Identity identity;
    const char* server_says;
    const char* client_says;
  };
  const std::string name = "URI:headrace://client/x";
  const Case cases[] = {
      {other.identity(), "another CA", "another CA"},
      {ca.identity({"clientAuth", name, -7200, -3600}), "expired at", "expired"},
      {ca.identity({"clientAuth", name, 3600, 7200}), "not valid before", "not yet valid"},
      {ca.identity({"serverAuth", name, -3600, 3600}), "not for clients", "not for this purpose"},
      {ca.identity({"", name, -3600, 3600}), "not for clients", "not for this purpose"},
  };
  for (const Case& one : cases) {
    const TlsContext client = TlsContext::client(one.identity, ca.trust()).take();
    const Outcome outcome = meet(client, server);
    INFO(outcome.server << " | " << outcome.client);
    CHECK(has(outcome.server, one.server_says));
    CHECK(has(outcome.client, one.client_says));
  }
}

TEST_CASE("a client checks the server's CA, purpose and address") {
  const TinyCa ca, other;
  const TlsContext client = TlsContext::client(ca.identity(), ca.trust()).take();
  const TlsContext good =
      TlsContext::server(ca.server("IP:127.0.0.1,IP:2001:db8::1,DNS:gpu.example"), ca.trust())
          .take();
  for (const char* host : {"127.0.0.1", "2001:db8::1", "[2001:DB8:0:0::1]", "2001:db8::1%eth0",
                           "gpu.example", "GPU.example."}) {
    CHECK(meet(client, good, host).client == "");
  }
  for (const char* host : {"127.0.0.2", "::ffff:127.0.0.1", "2001:db8::2", "gpu.example.org"}) {
    CHECK(has(meet(client, good, host).client, "another name or address"));
  }
  const TlsContext foreign = TlsContext::server(other.server(), ca.trust()).take();
  CHECK(has(meet(client, foreign).client, "another CA"));
  const TlsContext no_server = TlsContext::server(ca.identity(), ca.trust()).take();
  CHECK(has(meet(client, no_server).client, "not for servers"));
}

TEST_CASE("protocols other than ours are refused") {
  const TinyCa ca;
  const TlsContext client = TlsContext::client(ca.identity(), ca.trust()).take();
  const TlsContext server = TlsContext::server(ca.server(), ca.trust()).take();
  const Outcome enroll = meet(client, server, "127.0.0.1", alpn_enroll);
  CHECK(has(enroll.server, "enrolment, which is closed"));
  CHECK(has(enroll.client, "ALPN"));
  CHECK(has(meet(client, server, "127.0.0.1", "h2").server, "no protocol that is spoken here"));
}

TEST_CASE("plaintext and silence end the handshake") {
  const TinyCa ca;
  const TlsContext server = TlsContext::server(ca.server(), ca.trust()).take();
  for (const std::string_view text :
       {std::string_view("GET / HTTP/1.1\r\n\r\n"),
        std::string_view("\x00\x01\x02\x03\x04\x05\x06", 7), std::string_view("SSH-2.0-x\r\n")}) {
    Pair pair = socket_pair();
    REQUIRE(::write(pair.client.get(), text.data(), text.size()) ==
            static_cast<ssize_t>(text.size()));
    std::unique_ptr<TlsStream> stream = TlsStream::server(server, std::move(pair.server)).take();
    const Result<void> shaken = stream->handshake(Deadline::after_ms(patience_ms));
    REQUIRE_FALSE(shaken);
    CHECK(has(shaken.error().text, "plaintext"));
  }
  Pair pair = socket_pair();
  std::unique_ptr<TlsStream> stream = TlsStream::server(server, std::move(pair.server)).take();
  const Result<void> shaken = stream->handshake(Deadline::after_ms(20));
  REQUIRE_FALSE(shaken);
  CHECK(shaken.error().kind == ErrorKind::timed_out);
}

TEST_CASE("a lost peer is an error, not a signal") {
  const TinyCa ca;
  const TlsContext client_side = TlsContext::client(ca.identity(), ca.trust()).take();
  const TlsContext server_side = TlsContext::server(ca.server(), ca.trust()).take();
  Pair pair = socket_pair();
  std::unique_ptr<TlsStream> client =
      TlsStream::client(client_side, std::move(pair.client), "localhost").take();
  std::unique_ptr<TlsStream> server = TlsStream::server(server_side, std::move(pair.server)).take();
  std::thread other([&] { CHECK(server->handshake(Deadline::after_ms(patience_ms))); });
  CHECK(client->handshake(Deadline::after_ms(patience_ms)));
  other.join();
  server.reset();
  const std::vector<std::uint8_t> much(1 << 20);
  for (int i = 0; i < 4; ++i) {
    const Io io = client->write_some(much);
    if (io.status == IoStatus::failed) break;
  }
  CHECK(client->write_some(much).status == IoStatus::failed);
  CHECK(has(client->failure().text, "connection lost"));
}

TEST_CASE("large data crosses in both directions at once without a thread for each") {
  const TinyCa ca;
  const TlsContext client_side = TlsContext::client(ca.identity(), ca.trust()).take();
  const TlsContext server_side = TlsContext::server(ca.server(), ca.trust()).take();
  Pair pair = socket_pair();
  std::unique_ptr<TlsStream> client =
      TlsStream::client(client_side, std::move(pair.client), "localhost").take();
  std::unique_ptr<TlsStream> server = TlsStream::server(server_side, std::move(pair.server)).take();
  std::thread other([&] { CHECK(server->handshake(Deadline::after_ms(patience_ms))); });
  CHECK(client->handshake(Deadline::after_ms(patience_ms)));
  other.join();
  constexpr std::size_t size = 4 << 20;
  std::vector<std::uint8_t> data(size), at_client(size), at_server(size);
  for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<std::uint8_t>(i * 31 >> 3);
  struct End {
    TlsStream* stream;
    std::vector<std::uint8_t>* in;
    std::size_t sent = 0, got = 0;
  } ends[2] = {{client.get(), &at_client}, {server.get(), &at_server}};
  while (ends[0].got < size || ends[1].got < size) {
    for (End& end : ends) {
      if (end.sent < size) {
        const Io io = end.stream->write_some(std::span(data).subspan(end.sent));
        if (io.status == IoStatus::ok) end.sent += io.bytes;
        REQUIRE(io.status != IoStatus::failed);
      }
      if (end.got < size) {
        const Io io = end.stream->read_some(std::span(*end.in).subspan(end.got));
        if (io.status == IoStatus::ok) end.got += io.bytes;
        REQUIRE(io.status != IoStatus::failed);
      }
    }
  }
  CHECK(at_client == data);
  CHECK(at_server == data);
}

TEST_CASE("keys and certificates go out and come back") {
  const TinyCa ca;
  const Identity identity = ca.identity();
  const std::string pem = identity.certificate.pem();
  const Result<Identity> again =
      identity_from_pem(pem + ca.trust().front().pem(), identity.key.private_pem());
  REQUIRE(again);
  CHECK(again->certificate.der() == identity.certificate.der());
  CHECK(again->chain.size() == 1);
  CHECK(again->key.public_der() == identity.key.public_der());
  CHECK_FALSE(identity_from_pem(pem, PrivateKey::generate()->private_pem()));
  Bytes two = identity.certificate.der();
  const Bytes one = ca.trust().front().der();
  two.insert(two.end(), one.begin(), one.end());
  CHECK(certificates_from_der(two)->size() == 2);
  two.pop_back();
  CHECK_FALSE(certificates_from_der(two));
  CHECK_FALSE(certificates_from_pem("rubbish"));
  CHECK_FALSE(PrivateKey::from_pem("rubbish"));
}

}  // namespace
}  // namespace headrace
