// Hardware limits per compute capability that the software GPU advertises.
#pragma once

#include <cstddef>

namespace headrace::softgpu {

struct Limits {
  int major, minor;
  int threads_per_sm;
  int blocks_per_sm;
  int shared_per_sm;         // bytes
  int shared_per_block_max;  // bytes, with opt-in
  int clock_khz;
};

inline constexpr int kWarp = 32;
inline constexpr int kThreadsPerBlock = 1024;
inline constexpr int kSharedPerBlock = 48 << 10;
inline constexpr int kSharedReserved = 1 << 10;  // per resident block, from 8.0
inline constexpr int kRegistersPerSm = 65536;
inline constexpr int kMultiprocessors = 8;
inline constexpr unsigned kMaxBlock[3] = {1024, 1024, 64};
inline constexpr unsigned kMaxGrid[3] = {2147483647u, 65535, 65535};

// nullptr for a capability that is not in the table.
const Limits* find_limits(int major, int minor);

}  // namespace headrace::softgpu
