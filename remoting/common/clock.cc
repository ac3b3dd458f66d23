#include "common/clock.h"

#include <time.h>

#include <algorithm>

namespace headrace {

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

std::int64_t wall_clock_seconds() { return static_cast<std::int64_t>(time(nullptr)); }

int Deadline::poll_ms() const {
  if (at_ == std::numeric_limits<std::uint64_t>::max()) return -1;
  const std::uint64_t ms = (left_ns() + 999'999) / 1'000'000;
  return static_cast<int>(std::min<std::uint64_t>(ms, 3'600'000));
}

}  // namespace headrace
