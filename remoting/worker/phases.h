// What happens on a connection before anything of CUDA: who is there, and what do they want
// (PROTOCOL.md §3, §4, §6, §11).
#pragma once

#include <memory>
#include <string>

#include "common/errors.h"
#include "worker/broker_client.h"
#include "worker/connection.h"
#include "worker/ending.h"
#include "worker/session.h"

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

// A program's CUDA state and what serves it. Freeing it waits for the device.
struct ServedSession {
  ServedSession(std::unique_ptr<DriverTable> loaded, const std::vector<SessionDevice>& devices,
                const std::vector<std::uint64_t>& limits, BrokerClient& broker, FrameWriter& out,
                std::uint64_t features);
  // Somebody still waits for the device, so freeing might take for ever.
  bool stuck() const { return pool.running() != 0; }

  std::unique_ptr<DriverTable> driver;
  MemoryAccount memory;
  WaiterPool pool;
  Session session;
};

// Waits for Attach, asks for the grant, serves the program until it ends. What served it is left in
// `served`, so that the last words can go out before it is freed.
Ending session_phase(Connection& connection, BrokerClient& broker, const Introduction& introduction,
                     std::unique_ptr<ServedSession>& served);
// Frees it, or ends the process if that takes too long. Does not return if it is stuck.
void free_session(std::unique_ptr<ServedSession> served, int exit_code);

extern const char* const build_text;

}  // namespace headrace::worker
