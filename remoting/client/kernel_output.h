// What kernels printed (PROTOCOL.md §7.10). The thread that reads the connection only keeps it; the
// thread whose call it came with writes it before the call returns, as CUDA's driver does, so that
// a program which reads its own output cannot stop the connection.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "gen/messages.h"

namespace headrace::client {

class KernelOutput {
 public:
  void keep(protocol::Output&& output);
  // Writes what is kept to the C library's stdout and stderr, which the program shares with us: its
  // own text before and after stays where it belongs. Then stdout is flushed, as CUDA does.
  void write();

 private:
  std::mutex writing_;  // held while it is written: texts of two must not change places
  std::mutex mutex_;
  std::vector<protocol::Output> kept_;  // under mutex_
  std::atomic<bool> any_{false};
};

}  // namespace headrace::client
