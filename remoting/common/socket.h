// TCP for both ends: addresses as people write them, connecting with a deadline, and the socket
// options that PROTOCOL.md §1 asks for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/errors.h"
#include "common/unique_fd.h"

namespace headrace {

struct Endpoint {
  std::string host;  // without brackets
  std::uint16_t port = 0;

  std::string text() const;  // HOST:PORT, IPv6 in brackets
};

// HOST, HOST:PORT, [IPV6], [IPV6]:PORT, or a bare IPv6 address; `default_port` where none is given.
Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port = 7444);

// Connected, non-blocking, close-on-exec, tuned.
Result<UniqueFd> connect_tcp(const Endpoint& to, Deadline deadline);

// TCP_NODELAY, keepalive 60/15/3, TCP_USER_TIMEOUT 120 s. Unix sockets are left alone.
void tune_socket(int fd);
Result<void> set_nonblocking(int fd);

// Waits until `fd` is ready for `events` (POLLIN, POLLOUT); false when the deadline passed.
bool wait_ready(int fd, short events, Deadline deadline);

}  // namespace headrace
