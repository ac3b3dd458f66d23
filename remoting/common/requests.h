// One question at a time over the data port (PROTOCOL.md §6): what asks and waits, and needs
// neither coalescing nor threads. Not for two threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/errors.h"
#include "common/framing.h"
#include "common/socket.h"
#include "common/tls_stream.h"
#include "gen/messages.h"

namespace headrace {

constexpr std::uint8_t role_agent = 1;
constexpr std::uint8_t role_session = 2;

class Requests {
 public:
  // Connects and says hello in a role; `build` names us.
  static Result<Requests> connect(const Endpoint& server, const Identity& identity,
                                  const std::vector<Certificate>& trust, std::uint8_t role,
                                  const std::string& build);
  // The same for a program of a reservation, with the session file that it was given.
  static Result<Requests> of_session(const std::string& path, const std::string& build);

  // The server's answer, or its refusal as an error.
  template <typename Reply, typename Request>
  Result<Reply> ask(const Request& request) {
    const std::uint32_t call = next_call_++;
    FrameWriter out;
    if (!out.add(Request::kType, request, 0, call)) {
      return Error{ErrorKind::invalid_input, "a name in the request is too long", ""};
    }
    const Result<Frame> frame = exchange(out, call);
    if (!frame) return frame.error();
    Reader reader(frame->payload);
    Reply reply;
    if (frame->header.type == Reply::kType && Reply::decode(reader, reply)) return reply;
    return refusal(*frame);
  }

  // Takes the connection out of our hands and leaves it open.
  UniqueFd keep() { return tls_->release_socket(); }
  // Says goodbye.
  void close();

 private:
  explicit Requests(std::unique_ptr<TlsStream> tls) : tls_(std::move(tls)) {}
  Result<Frame> exchange(FrameWriter& out, std::uint32_t call);
  static Error refusal(const Frame& frame);

  std::unique_ptr<TlsStream> tls_;
  FrameReader in_;
  std::uint32_t next_call_ = 1;
};

}  // namespace headrace
