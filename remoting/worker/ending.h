// Why a connection ended: told to the client in a Close (PROTOCOL.md §9), to the daemon in a
// WorkerReport, and to the journal in one line.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "common/errors.h"

namespace headrace::worker {

// Codes of Refuse and Close.
enum class Code : std::uint16_t {
  finished = 0,
  protocol = 1,
  version = 2,
  not_permitted = 3,
  busy = 4,
  internal = 5,
  shutting_down = 6,
  not_enough = 10,
  no_such = 11,
  invalid = 12,
};

struct Ending {
  Code code = Code::finished;
  std::string event;  // one word: handshake, protocol, lost, refused, …
  std::string text;   // for people; no names of users or machines
  bool tell_client = true;

  static Ending finished(std::string text) { return {Code::finished, "finished", std::move(text)}; }
  static Ending protocol_error(std::string text) {
    return {Code::protocol, "protocol", std::move(text)};
  }
  static Ending lost(std::string text) {
    return {Code::finished, "lost", std::move(text), /*tell_client=*/false};
  }
  static Ending internal(std::string text) { return {Code::internal, "internal", std::move(text)}; }
};

}  // namespace headrace::worker
