// What happens on a connection before anything of CUDA: who is there, and what do they want
// (PROTOCOL.md §3, §4, §6, §11).
#pragma once

#include <memory>
#include <string>

#include "common/errors.h"
#include "worker/broker_client.h"
#include "worker/connection.h"
#include "worker/ending.h"

namespace headrace::worker {

enum class Role : std::uint8_t { agent = 1, session = 2 };

// What headraced gives a worker to show itself with, and how patient to be.
struct Introduction {
  TlsContext tls;
  std::uint64_t handshake_ms = 0;
  std::uint64_t idle_ms = 0;
};

// Makes a key, asks for a certificate of minutes for it.
Result<Introduction> introduce(BrokerClient& broker, const std::string& peer);

// Hello and PeerCheck. No role: `ending` says why.
std::optional<Role> hello(Connection& connection, BrokerClient& broker,
                          const Introduction& introduction, Ending& ending);

// Serves a launcher or agent until its connection ends; that ends its reservation.
Ending agent_phase(Connection& connection, BrokerClient& broker, const Introduction& introduction);

// Waits for Attach, asks for the grant, serves the program until it ends.
Ending session_phase(Connection& connection, BrokerClient& broker,
                     const Introduction& introduction);

extern const char* const build_text;

}  // namespace headrace::worker
