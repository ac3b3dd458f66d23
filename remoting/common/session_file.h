// The session file (PROTOCOL.md §6.1): how a launcher hands credentials to a program's library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/errors.h"
#include "common/socket.h"

namespace headrace {

struct SessionFile {
  Endpoint server;
  std::string reservation;
  bool software = false;      // granted devices are software GPUs
  std::uint64_t expires = 0;  // seconds since 1970
  std::string certificates;   // PEM: session certificate and chain
  std::string key;            // PEM, PKCS#8
  std::string trust;          // PEM: trust anchors
};

std::string format_session_file(const SessionFile& session);
Result<SessionFile> parse_session_file(std::string_view text);

// Refuses a file that others may read.
Result<SessionFile> read_session_file(const std::string& path);
Result<void> write_session_file(const std::string& path, const SessionFile& session);

}  // namespace headrace
