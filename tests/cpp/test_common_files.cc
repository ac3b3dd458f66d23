// Addresses as people write them, and the session file (PROTOCOL.md §6.1).
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "common/files.h"
#include "common/session_file.h"
#include "common/socket.h"

namespace headrace {
namespace {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    char name[] = "/tmp/headrace-test-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TemporaryFolder() { [[maybe_unused]] const int done = std::system(("rm -rf " + path_).c_str()); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

TEST_CASE("addresses") {
  struct Case {
    const char* text;
    const char* host;
    int port;
  };
  const Case good[] = {
      {"gpu.example", "gpu.example", 7444},    {"gpu.example:1", "gpu.example", 1},
      {"192.0.2.1:7444", "192.0.2.1", 7444},   {"[2001:db8::1]:99", "2001:db8::1", 99},
      {"[2001:db8::1]", "2001:db8::1", 7444},  {"2001:db8::1", "2001:db8::1", 7444},
      {"[fe80::1%eth0]:9", "fe80::1%eth0", 9},
  };
  for (const Case& one : good) {
    const Result<Endpoint> parsed = parse_endpoint(one.text);
    REQUIRE(parsed);
    CHECK(parsed->host == one.host);
    CHECK(parsed->port == one.port);
  }
  for (const char* text : {"", ":1", "host:", "host:0", "host:65536", "host:x", "[::1", "[::1]x",
                           "a b", "host:1 ", "::]#", "[fe80::1%a]b]", "a[b", "x::1"}) {
    CHECK_FALSE(parse_endpoint(text));
  }
  CHECK(parse_endpoint("[::1]:5")->text() == "[::1]:5");
}

TEST_CASE("connecting to nobody says where and why") {
  const Result<UniqueFd> fd = connect_tcp(Endpoint{"127.0.0.1", 1}, Deadline::after_ms(2000));
  REQUIRE_FALSE(fd);
  CHECK(fd.error().kind == ErrorKind::unavailable);
  CHECK(fd.error().text.find("127.0.0.1:1") != std::string::npos);
}

SessionFile example() {
  SessionFile session;
  session.server = Endpoint{"::1", 7444};
  session.reservation = "r-1";
  session.software = true;
  session.expires = 1234;
  session.certificates = "-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n";
  session.key = "-----BEGIN PRIVATE KEY-----\nBB\n-----END PRIVATE KEY-----\n";
  session.trust = "-----BEGIN CERTIFICATE-----\nCC\n-----END CERTIFICATE-----\n";
  return session;
}

TEST_CASE("a session file comes back as written") {
  const TemporaryFolder folder;
  const std::string path = folder / "session";
  REQUIRE(write_session_file(path, example()));
  const Result<SessionFile> read = read_session_file(path);
  REQUIRE(read);
  CHECK(format_session_file(*read) == format_session_file(example()));
  CHECK(read->server.host == "::1");
  CHECK(read->software);
  CHECK(read->expires == 1234);
  CHECK_FALSE(write_session_file(path, example()));  // never over another one
}

TEST_CASE("a session file that others may read is refused") {
  const TemporaryFolder folder;
  const std::string path = folder / "session";
  REQUIRE(write_session_file(path, example()));
  REQUIRE(chmod(path.c_str(), 0640) == 0);
  const Result<SessionFile> read = read_session_file(path);
  REQUIRE_FALSE(read);
  CHECK(read.error().kind == ErrorKind::not_permitted);
  CHECK(read.error().hint == "chmod 600 " + path);
}

TEST_CASE("odd session files are refused, later ones are read") {
  CHECK_FALSE(parse_session_file(""));
  CHECK_FALSE(parse_session_file("headrace-session 2\n"));
  CHECK_FALSE(parse_session_file("headrace-session 1\nserver x:1\n"));
  std::string text = format_session_file(example());
  CHECK_FALSE(parse_session_file(text.substr(0, text.find("[ca]"))));
  text.insert(text.find("reservation"), "tomorrow's key and value\n");
  CHECK(parse_session_file(text));
  CHECK_FALSE(read_session_file("/nonexistent/session"));
  CHECK_FALSE(read_private_file("/", 100));
}

}  // namespace
}  // namespace headrace
