// The client's connection against a server in this process that speaks frames and nothing else.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "client/connection.h"
#include "gen/calls.h"
#include "tiny_pki.h"

namespace headrace::client {
namespace {

constexpr std::uint64_t patience_ms = 20'000;

// Answers Hello and Attach, then hands every frame to the test's function.
class FakeServer {
 public:
  using Handler =
      std::function<bool(FakeServer&, const FrameHeader&, std::span<const std::uint8_t>)>;

  explicit FakeServer(Handler handler) : handler_(std::move(handler)) {
    listener_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(listener_.get(), 1) == 0);
    socklen_t size = sizeof address;
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] {
      serve();
      tls_.reset();  // the connection ends with the service
    });
  }
  ~FakeServer() { thread_.join(); }

  SessionFile session() const {
    const Identity identity = ca_.identity();
    SessionFile file;
    file.server = {"127.0.0.1", port_};
    file.certificates = identity.certificate.pem();
    file.key = identity.key.private_pem();
    file.trust = pem_of(ca_.trust());
    return file;
  }

  template <typename Message>
  void send(const Message& message, std::uint16_t flags, std::uint32_t call) {
    FrameWriter out;
    const std::size_t place = out.begin(Message::kType, flags, call);
    (void)message.encode(out.out());
    out.end(place);
    write(out);
  }
  void reply(const FrameHeader& to, std::int32_t result, std::int32_t deferred = 0,
             std::uint64_t field = 0, bool with_field = false) {
    FrameWriter out;
    const std::size_t place = out.begin(to.type, flag_reply, to.call);
    out.out().i32(result);
    out.out().i32(deferred);
    out.out().u8(0);
    if (with_field) out.out().u64(field);
    out.end(place);
    write(out);
  }
  void data(const FrameHeader& to, std::span<const std::uint8_t> bytes) {
    FrameWriter out;
    const std::size_t place = out.begin(to.type, flag_reply | flag_more, to.call);
    out.out().raw(bytes.data(), bytes.size());
    out.end(place);
    write(out);
  }
  std::atomic<int> frames{0};
  std::atomic<int> reads{0};

 private:
  void write(const FrameWriter& out) {
    (void)tls_->write_all(out.pending(), Deadline::after_ms(patience_ms));
  }
  void serve() {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const TlsContext context = TlsContext::server(ca_.server(), ca_.trust()).take();
    tls_ = TlsStream::server(context, std::move(socket)).take();
    if (!tls_->handshake(Deadline::after_ms(patience_ms))) return;
    std::vector<std::uint8_t> payload;
    FrameHeader header;
    while (next(header, payload)) {
      if (header.type == protocol::Hello::kType) {
        protocol::Welcome welcome;
        welcome.version = 1;
        welcome.max_payload = max_payload_v1;
        welcome.max_outstanding = 8;
        send(welcome, flag_reply, header.call);
      } else if (header.type == protocol::Attach::kType) {
        protocol::Attached attached;
        attached.driver_version = 13000;
        send(attached, flag_reply, header.call);
      } else if (header.type == protocol::Close::kType) {
        return;
      } else {
        ++frames;
        if (!handler_(*this, header, payload)) return;
      }
    }
  }
  bool next(FrameHeader& header, std::vector<std::uint8_t>& payload) {
    std::uint8_t head[frame_header_size];
    if (!tls_->read_all(head, Deadline::after_ms(patience_ms))) return false;
    header = decode_header(head);
    payload.resize(header.length);
    ++reads;
    return static_cast<bool>(tls_->read_all(payload, Deadline::after_ms(patience_ms)));
  }

  testing::TinyCa ca_;
  Handler handler_;
  UniqueFd listener_;
  std::uint16_t port_ = 0;
  std::unique_ptr<TlsStream> tls_;
  std::thread thread_;
};

std::unique_ptr<Connection> connect(const FakeServer& server, protocol::Attached& attached) {
  Result<std::unique_ptr<Connection>> made = Connection::open(
      server.session(), "test", [](const std::string&) {}, attached);
  if (!made) FAIL(made.error().text);
  return made.take();
}

std::unique_ptr<Connection> connect(const FakeServer& server) {
  protocol::Attached attached;
  return connect(server, attached);
}

Connection::Sent ask(Connection& connection, std::uint64_t size, std::uint64_t& answer,
                     ReplyHead& head) {
  calls::CuMemAlloc_v2 call;
  call.bytesize = size;
  std::vector<std::uint8_t> fields;
  const Connection::Sent sent = connection.trip(1, call, {}, head, fields);
  Reader reader(fields.data(), fields.size());
  reader.raw(calls::ReplyHeader::size);
  answer = reader.u64();
  return sent;
}

// Replies to an allocation with its size.
bool echo(FakeServer& server, const FrameHeader& header, std::span<const std::uint8_t> payload) {
  if (header.call == 0) return true;
  Reader reader(payload.data(), payload.size());
  server.reply(header, 0, 0, reader.u64(), true);
  return true;
}

}  // namespace

TEST_CASE("attach, an answering call, a deferred error with its reply") {
  FakeServer server([](FakeServer& self, const FrameHeader& header, std::span<const std::uint8_t>) {
    if (header.call != 0) self.reply(header, 0, 700, 42, true);
    return true;
  });
  protocol::Attached attached;
  const std::unique_ptr<Connection> connection = connect(server, attached);
  CHECK(attached.driver_version == 13000);
  ReplyHead head;
  std::uint64_t answer = 0;
  CHECK(ask(*connection, 5, answer, head) == Connection::Sent::ok);
  CHECK(head.deferred == 700);
  CHECK(answer == 42);
  connection->say_goodbye(1000);
}

TEST_CASE("calls that await nothing arrive in order, also when nobody waits") {
  std::atomic<std::uint64_t> sum{0};
  std::atomic<bool> ordered{true};
  std::uint64_t last = 0;
  FakeServer server(
      [&](FakeServer&, const FrameHeader& header, std::span<const std::uint8_t> payload) {
        if (header.type != calls::CuEventDestroy_v2::kType) return true;
        Reader reader(payload.data(), payload.size());
        const std::uint64_t number = reader.u64();
        if (number != last + 1) ordered = false;
        last = number;
        sum += number;
        return true;
      });
  const std::unique_ptr<Connection> connection = connect(server);
  std::uint64_t expected = 0;
  for (std::uint64_t i = 1; i <= 20'000; ++i) {
    calls::CuEventDestroy_v2 call;
    call.hEvent = i;
    REQUIRE(connection->send(1, call) == Connection::Sent::ok);
    expected += i;
  }
  // The flusher writes the rest by itself.
  const Deadline deadline = Deadline::after_ms(patience_ms);
  while (sum != expected && !deadline.passed()) std::this_thread::yield();
  CHECK(sum == expected);
  CHECK(ordered);
  connection->say_goodbye(1000);
}

TEST_CASE("many threads wait at once, more than the server allows outstanding") {
  FakeServer server(echo);
  const std::unique_ptr<Connection> connection = connect(server);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 12; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 300; ++i) {
        calls::CuEventDestroy_v2 quiet;
        connection->send(t, quiet);
        ReplyHead head;
        std::uint64_t answer = 0;
        if (ask(*connection, t * 1000 + i, answer, head) != Connection::Sent::ok ||
            answer != t * 1000 + i) {
          ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  connection->say_goodbye(1000);
}

TEST_CASE("data frames fill the destination, and large fields leave from where they lie") {
  std::vector<std::uint8_t> received;
  FakeServer server(
      [&](FakeServer& self, const FrameHeader& header, std::span<const std::uint8_t> payload) {
        if (header.type == calls::CuMemcpyHtoDAsync_v2::kType) {
          Reader reader(payload.data(), payload.size());
          calls::CuMemcpyHtoDAsync_v2 call;
          if (!calls::CuMemcpyHtoDAsync_v2::decode(reader, call) || call.hStream != 9) return false;
          received.insert(received.end(), call.srcHost.begin(), call.srcHost.end());
        } else if (header.type == calls::CuMemcpyDtoHAsync_v2::kType) {
          for (std::size_t at = 0; at < received.size(); at += 300'000) {
            self.data(header, std::span(received).subspan(
                                  at, std::min<std::size_t>(300'000, received.size() - at)));
          }
          self.reply(header, 0);
        }
        return true;
      });
  const std::unique_ptr<Connection> connection = connect(server);
  std::vector<std::uint8_t> sent(1'000'000);
  std::iota(sent.begin(), sent.end(), 0);
  Writer before;
  before.u64(0x1000);
  before.u32(static_cast<std::uint32_t>(sent.size()));
  Writer after;
  after.u64(9);
  CHECK(connection->send_around(1, calls::CuMemcpyHtoDAsync_v2::kType, before.view(), sent,
                                after.view()) == Connection::Sent::ok);
  std::vector<std::uint8_t> back(sent.size());
  calls::CuMemcpyDtoHAsync_v2 call;
  ReplyHead head;
  std::vector<std::uint8_t> fields;
  CHECK(connection->trip(1, call, Connection::Sink{back, nullptr, 0}, head, fields) ==
        Connection::Sent::ok);
  CHECK(back == sent);
  std::vector<std::uint8_t> grown;
  CHECK(connection->trip(1, call, Connection::Sink{{}, &grown, 2'000'000}, head, fields) ==
        Connection::Sent::ok);
  CHECK(grown == sent);
  // More than was asked for ends the connection.
  std::vector<std::uint8_t> small(10);
  CHECK(connection->trip(1, call, Connection::Sink{small, nullptr, 0}, head, fields) ==
        Connection::Sent::lost);
  CHECK(connection->lost());
}

TEST_CASE("a server that must be read before it reads on blocks nobody") {
  // For each small request 512 KiB come back; the server reads nothing while it writes. A client
  // that only wrote would wait for it, and it for the client.
  const std::vector<std::uint8_t> bulk(512 * 1024, 7);
  FakeServer server(
      [&](FakeServer& self, const FrameHeader& header, std::span<const std::uint8_t>) {
        if (header.type == calls::CuMemcpyDtoHAsync_v2::kType) {
          for (int i = 0; i < 16; ++i) self.data(header, bulk);
          self.reply(header, 0);
        }
        return true;
      });
  const std::unique_ptr<Connection> connection = connect(server);
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      std::vector<std::uint8_t> back(16 * bulk.size());
      const std::vector<std::uint8_t> up(900'000);
      for (int i = 0; i < 3; ++i) {
        Writer before;
        before.u64(0);
        before.u32(static_cast<std::uint32_t>(up.size()));
        Writer after;
        after.u64(0);
        connection->send_around(1, calls::CuMemcpyHtoDAsync_v2::kType, before.view(), up,
                                after.view());
        calls::CuMemcpyDtoHAsync_v2 call;
        ReplyHead head;
        std::vector<std::uint8_t> fields;
        if (connection->trip(1, call, Connection::Sink{back, nullptr, 0}, head, fields) !=
            Connection::Sent::ok) {
          ++failed;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 0);
  connection->say_goodbye(1000);
}

TEST_CASE("a lost connection wakes all who wait, and every later call says so") {
  std::atomic<int> waiting{0};
  FakeServer server([&](FakeServer&, const FrameHeader&, std::span<const std::uint8_t>) {
    return ++waiting < 8;  // answers nothing, then is gone
  });
  const std::unique_ptr<Connection> connection = connect(server);
  std::vector<std::thread> threads;
  std::atomic<int> lost{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      ReplyHead head;
      std::uint64_t answer = 0;
      if (ask(*connection, 1, answer, head) == Connection::Sent::lost) ++lost;
    });
  }
  calls::CuEventDestroy_v2 quiet;
  while (!connection->lost()) connection->send(waiting.load(), quiet);
  for (std::thread& thread : threads) thread.join();
  CHECK(lost == 4);
  CHECK(connection->send(1, quiet) == Connection::Sent::lost);
  connection->say_goodbye(1000);
}

TEST_CASE("a reply that nobody asked for ends the connection") {
  FakeServer server([](FakeServer& self, const FrameHeader& header, std::span<const std::uint8_t>) {
    if (header.call == 0) return true;
    FrameHeader other = header;
    other.call = header.call + 1;
    self.reply(other, 0);
    return true;
  });
  const std::unique_ptr<Connection> connection = connect(server);
  ReplyHead head;
  std::uint64_t answer = 0;
  CHECK(ask(*connection, 1, answer, head) == Connection::Sent::lost);
}

TEST_CASE("pings are answered while a call waits") {
  std::atomic<bool> answered{false};
  FrameHeader asked;
  FakeServer server(
      [&](FakeServer& self, const FrameHeader& header, std::span<const std::uint8_t> payload) {
        if (header.type == protocol::Pong::kType) {
          Reader reader(payload.data(), payload.size());
          answered = reader.u64() == 99;
          self.reply(asked, 0, 0, 1, true);
        } else if (header.call != 0) {
          asked = header;
          protocol::Ping ping;
          ping.cookie = 99;
          self.send(ping, 0, 0);
        }
        return true;
      });
  const std::unique_ptr<Connection> connection = connect(server);
  ReplyHead head;
  std::uint64_t answer = 0;
  CHECK(ask(*connection, 1, answer, head) == Connection::Sent::ok);
  CHECK(answered);
  connection->say_goodbye(1000);
}

namespace {

class Counting final : public Unasked {
 public:
  bool change_host_memory(const protocol::HostChanges&) override { return true; }
  void run(const protocol::CallbackRun& run) override {
    ordered = ordered && run.callback == arrived + 1;
    ++arrived;
  }
  void print(protocol::Output&& output) override {
    printed += static_cast<int>(output.data.size());
  }
  void lost() override { ended = true; }

  std::atomic<std::uint64_t> arrived{0};
  std::atomic<int> printed{0};
  std::atomic<bool> ended{false};
  bool ordered = true;  // by the reader only
};

}  // namespace

TEST_CASE("what the server says unasked is read whether or not somebody waits") {
  constexpr std::uint64_t count = 500;
  std::uint64_t next = 0;
  FakeServer server(
      [&](FakeServer& self, const FrameHeader& header, std::span<const std::uint8_t>) {
        if (header.type == protocol::CallbackDone::kType) {
          protocol::CallbackRun run;
          run.callback = ++next;
          run.due = true;
          self.send(run, 0, 0);
        } else if (header.call != 0) {
          protocol::Output output;
          output.stream = 1;
          output.data.assign(3, 'x');
          self.send(output, 0, 0);
          self.reply(header, 0, 0, 1, true);
        }
        return true;
      });
  Counting unasked;
  const std::unique_ptr<Connection> connection = connect(server);
  connection->set_unasked(unasked);
  std::thread reader(
      [&] { connection->read_while([&] { return unasked.arrived.load() < count; }); });
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  constexpr int asked = 200;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < asked; ++i) {
        ReplyHead head;
        std::uint64_t answer = 0;
        if (ask(*connection, 1, answer, head) == Connection::Sent::ok) ++good;
      }
    });
  }
  for (std::uint64_t i = 0; i < count; ++i) CHECK(connection->tell(protocol::CallbackDone{i}));
  reader.join();
  for (std::thread& thread : threads) thread.join();
  CHECK(good == 3 * asked);
  CHECK(unasked.arrived == count);
  CHECK(unasked.ordered);
  CHECK(unasked.printed == 3 * 3 * asked);
  CHECK(!unasked.ended);
  connection->say_goodbye(1000);
}

TEST_CASE("who reads for nobody hears of a lost connection") {
  FakeServer server([](FakeServer&, const FrameHeader&, std::span<const std::uint8_t>) {
    return false;  // ends
  });
  Counting unasked;
  const std::unique_ptr<Connection> connection = connect(server);
  connection->set_unasked(unasked);
  CHECK(connection->tell(protocol::CallbackDone{1}));
  connection->read_while([] { return true; });
  CHECK(connection->lost());
  CHECK(unasked.ended);
}

}  // namespace headrace::client
