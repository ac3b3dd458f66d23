#include "remoting/softgpu/device/limits.h"

namespace headrace::softgpu {

const Limits* find_limits(int major, int minor) {
  // Figures of the CUDA C++ Programming Guide's table of technical specifications.
  static constexpr Limits kTable[] = {
      {7, 5, 1024, 16, 64 << 10, 64 << 10, 1590000},
      {8, 0, 2048, 32, 164 << 10, 163 << 10, 1410000},
      {8, 6, 1536, 16, 100 << 10, 99 << 10, 1695000},
      {8, 9, 1536, 24, 100 << 10, 99 << 10, 2520000},
      {9, 0, 2048, 32, 228 << 10, 227 << 10, 1980000},
      {12, 0, 1536, 24, 100 << 10, 99 << 10, 2400000},
  };
  for (const Limits& row : kTable) {
    if (row.major == major && row.minor == minor) return &row;
  }
  return nullptr;
}

}  // namespace headrace::softgpu
