#include "common/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <memory>

namespace headrace {
namespace {

constexpr int keepalive_idle_s = 60, keepalive_interval_s = 15, keepalive_count = 3;
constexpr int user_timeout_ms = 120'000;

bool parse_port(std::string_view text, std::uint16_t& port) {
  unsigned value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value == 0 || value > 65535) {
    return false;
  }
  port = static_cast<std::uint16_t>(value);
  return true;
}

// A name, or an address; with a colon it is IPv6, perhaps with a zone (fe80::1%eth0).
bool could_be_host(std::string_view text) {
  if (text.find_first_of(" \t\r\n/[]") != text.npos) return false;
  if (text.find(':') == text.npos) return true;
  text = text.substr(0, text.find('%'));
  return text.find_first_not_of("0123456789abcdefABCDEF:.") == text.npos;
}

Error bad_endpoint(std::string_view text) {
  return Error{ErrorKind::invalid_input, "not an address: \"" + std::string(text) + "\"",
               "write HOST:PORT, 192.0.2.1:7444 or [2001:db8::1]:7444"};
}

// Ends with the descriptor connected, or the errno of this one address.
int try_connect(const addrinfo& address, Deadline deadline, UniqueFd& out) {
  UniqueFd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno;
  if (::connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    if (!wait_ready(fd.get(), POLLOUT, deadline)) return ETIMEDOUT;
    int failure = 0;
    socklen_t size = sizeof failure;
    if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failure, &size) != 0) return errno;
    if (failure != 0) return failure;
  }
  tune_socket(fd.get());
  out = std::move(fd);
  return 0;
}

}  // namespace

std::string Endpoint::text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port) {
  Endpoint endpoint{"", default_port};
  std::string_view rest;
  if (!text.empty() && text.front() == '[') {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return bad_endpoint(text);
    endpoint.host = text.substr(1, close - 1);
    rest = text.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') return bad_endpoint(text);
  } else if (const std::size_t colon = text.find(':');
             colon == std::string_view::npos || text.find(':', colon + 1) != text.npos) {
    endpoint.host = text;  // no port, or a bare IPv6 address
  } else {
    endpoint.host = text.substr(0, colon);
    rest = text.substr(colon);
  }
  if (!rest.empty() && !parse_port(rest.substr(1), endpoint.port)) return bad_endpoint(text);
  if (endpoint.host.empty() || endpoint.host.size() > 255 || !could_be_host(endpoint.host)) {
    return bad_endpoint(text);
  }
  return endpoint;
}

Result<UniqueFd> connect_tcp(const Endpoint& to, Deadline deadline) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(to.port);
  if (const int status = getaddrinfo(to.host.c_str(), port.c_str(), &wanted, &found)) {
    return Error{
        ErrorKind::unavailable,
        "cannot find " + to.host + ": " +
            (status == EAI_SYSTEM ? system_error(ErrorKind::unavailable, "lookup", errno).text
                                  : gai_strerror(status)),
        "check the server's name"};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, freeaddrinfo);
  int failure = EADDRNOTAVAIL;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    UniqueFd fd;
    failure = try_connect(*one, deadline, fd);
    if (failure == 0) return fd;
  }
  Error error = system_error(failure == ETIMEDOUT ? ErrorKind::timed_out : ErrorKind::unavailable,
                             "cannot connect to " + to.text(), failure);
  error.hint = "is the appliance up, and does a firewall let port " + port + " through?";
  return error;
}

void tune_socket(int fd) {
  const int one = 1;
  // Each fails on a Unix socket, and that is fine.
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &keepalive_idle_s, sizeof keepalive_idle_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &keepalive_interval_s, sizeof keepalive_interval_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &keepalive_count, sizeof keepalive_count);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms, sizeof user_timeout_ms);
}

Result<void> set_nonblocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return system_error(ErrorKind::internal, "cannot make a socket non-blocking", errno);
  }
  return {};
}

bool wait_ready(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd one{fd, events, 0};
    const int ready = poll(&one, 1, deadline.poll_ms());
    if (ready > 0) return true;
    if (ready == 0 && deadline.passed()) return false;
    if (ready < 0 && errno != EINTR) return true;  // the next read or write reports it
  }
}

}  // namespace headrace
