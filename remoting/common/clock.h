// Time that never jumps, and points in it to be done by.
#pragma once

#include <cstdint>
#include <limits>

namespace headrace {

std::uint64_t monotonic_ns();
// Seconds since 1970, for what people and certificates read.
std::int64_t wall_clock_seconds();

class Deadline {
 public:
  static Deadline after_ms(std::uint64_t ms) { return Deadline(monotonic_ns() + ms * 1'000'000); }
  static Deadline never() { return Deadline(std::numeric_limits<std::uint64_t>::max()); }

  bool passed() const { return at_ != std::numeric_limits<std::uint64_t>::max() && left_ns() == 0; }
  // For poll(2): -1 never, otherwise rounded up so that a wait does not spin at its end.
  int poll_ms() const;

 private:
  explicit Deadline(std::uint64_t at) : at_(at) {}
  std::uint64_t left_ns() const {
    const std::uint64_t now = monotonic_ns();
    return now >= at_ ? 0 : at_ - now;
  }
  std::uint64_t at_;
};

}  // namespace headrace
