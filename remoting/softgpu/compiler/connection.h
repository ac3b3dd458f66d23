// One connection to the compile helper: frames out and in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "softgpu/compiler/json.h"

namespace headrace::softgpu {

struct Reply {
  json::Value header;
  std::vector<std::uint8_t> attachment;
};

class Connection {
 public:
  explicit Connection(int descriptor) : descriptor_(descriptor) {}
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sends a request and waits for its reply. False when the connection broke or made no sense;
  // it is of no use any more then.
  bool ask(std::string_view header, std::string_view attachment, Reply& reply);

  int descriptor() const { return descriptor_; }
  // In a forked child: the descriptor belongs to the parent's conversation.
  void forget() { descriptor_ = -1; }

 private:
  bool send_all(const void* data, std::size_t bytes);
  bool receive_all(void* data, std::size_t bytes);
  bool wait_for(short events);

  int descriptor_;
};

// A connected socket (close-on-exec), or -1 with errno.
int connect_unix(const std::string& path);

}  // namespace headrace::softgpu
