// Which frames a client may send in which phase (PROTOCOL.md §3), as data.
#pragma once

#include <cstdint>

namespace headrace::worker {

enum class Phase : std::uint8_t { hello, agent, session, attached };

const char* phase_name(Phase phase);
bool permitted(Phase phase, std::uint16_t type);

}  // namespace headrace::worker
