// Ends the process when the network thread is stuck in a driver and its client is gone.
//
// A driver may hold the thread that calls it: a full queue behind a kernel that never ends, or a
// hung device. Then nobody would notice that the connection is over, and the session would keep its
// slice of the GPU for as long as its reservation lasts.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "common/unique_fd.h"

namespace headrace::worker {

class StuckGuard {
 public:
  // `socket` is watched for the end of the connection, and not read.
  explicit StuckGuard(int socket);
  ~StuckGuard();
  StuckGuard(const StuckGuard&) = delete;
  StuckGuard& operator=(const StuckGuard&) = delete;

  // The network thread has come by.
  void tick() { ticks_.fetch_add(1, std::memory_order_relaxed); }
  // It is about to wait for the socket itself, and will notice.
  void waiting(bool waits) { waiting_.store(waits, std::memory_order_relaxed); }

 private:
  void watch(int socket);

  std::atomic<std::uint64_t> ticks_{0};
  std::atomic<bool> waiting_{false};
  UniqueFd stop_;
  std::thread thread_;
};

}  // namespace headrace::worker
