// Whether the process that wrote its number into shared memory is still there.
#pragma once

#include <cstdint>

namespace headrace::softgpu {

// Clock ticks since boot; 0: not known. With its start time a pid names one process, even after the
// pid was given out again.
std::uint64_t process_started(std::uint32_t pid);

// Where /proc hides other users' processes, one that exists is taken for the one that is meant. A
// zombie has given its memory up and counts as ended.
bool process_alive(std::uint32_t pid, std::uint64_t started);

}  // namespace headrace::softgpu
