#include "worker/stuck_guard.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"

namespace headrace::worker {
namespace {

constexpr int look_ms = 1'000;
// Copies and loads hold the network thread for a while, too, also of clients that have gone.
constexpr std::uint64_t patience_ms = 10'000;

void give_up() {
  constexpr char text[] =
      "headrace-worker: lost: the client is gone, and the driver does not return\n";
  [[maybe_unused]] const ssize_t put = ::write(STDERR_FILENO, text, sizeof text - 1);
  _exit(1);
}

}  // namespace

StuckGuard::StuckGuard(int socket)
    : stop_(eventfd(0, EFD_CLOEXEC)), thread_([this, socket] { watch(socket); }) {}

StuckGuard::~StuckGuard() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void StuckGuard::watch(int socket) {
  std::uint64_t seen = ticks_;
  Deadline deadline = Deadline::after_ms(patience_ms);
  for (;;) {
    pollfd stop{stop_.get(), POLLIN, 0};
    if (poll(&stop, 1, look_ms) > 0) return;
    const std::uint64_t now = ticks_;
    if (now != seen || waiting_) {
      seen = now;
      deadline = Deadline::after_ms(patience_ms);
      continue;
    }
    if (!deadline.passed()) continue;
    pollfd peer{socket, POLLRDHUP, 0};
    if (poll(&peer, 1, 0) > 0 && (peer.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) give_up();
  }
}

}  // namespace headrace::worker
