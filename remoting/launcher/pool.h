// The agent phase of the data protocol (PROTOCOL.md §6), done by the launcher itself as long as the
// machine has no agent.
#pragma once

#include <utility>

#include "common/requests.h"
#include "launcher/config.h"

namespace headrace::launcher {

class Pool {
 public:
  // Connects and says hello.
  static Result<Pool> connect(const Config& config);

  Result<protocol::ListReply> list();
  // What it grants lasts as long as the connection.
  Result<protocol::ReserveGrant> reserve(const protocol::ReserveRequest& request);

  // Takes the connection out of our hands and leaves it open.
  UniqueFd keep() { return requests_.keep(); }
  // Says goodbye.
  void close() { requests_.close(); }

 private:
  explicit Pool(Requests requests) : requests_(std::move(requests)) {}

  Requests requests_;
};

extern const char* const build_text;

}  // namespace headrace::launcher
