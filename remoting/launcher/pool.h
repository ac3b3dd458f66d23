// The agent phase of the data protocol (PROTOCOL.md §6), done by the launcher itself as long as the
// machine has no agent.
#pragma once

#include <memory>

#include "common/errors.h"
#include "common/framing.h"
#include "common/tls_stream.h"
#include "gen/messages.h"
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
  UniqueFd keep() { return tls_->release_socket(); }
  // Says goodbye.
  void close();

 private:
  explicit Pool(std::unique_ptr<TlsStream> tls) : tls_(std::move(tls)) {}
  template <typename Reply, typename Request>
  Result<Reply> ask(const Request& request);
  Result<Frame> receive(std::uint32_t call);

  std::unique_ptr<TlsStream> tls_;
  FrameReader in_;
  std::uint32_t next_call_ = 1;
};

extern const char* const build_text;

}  // namespace headrace::launcher
