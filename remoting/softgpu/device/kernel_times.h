// How long kernels are said to take: HEADRACE_SOFTGPU_TIMES, for programs and schedulers that are
// to see the times of a real device, or of one that is always busy.
//
//   HEADRACE_SOFTGPU_TIMES='*gemm*=2ms+3us/block,warm_up=0,*=50us'
//   HEADRACE_SOFTGPU_TIMES=@FILE          the same, an entry a line; # begins a comment
//
// The first pattern (as of a shell) that fits the kernel's name counts. A launch takes at least
// that long on a device of its own, and longer when the device is shared (condition.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headrace::softgpu {

struct KernelTime {
  std::string pattern;
  double nanoseconds = 0;
  double nanoseconds_per_block = 0;
};

// Entries that are understood; `bad` has the first that is not.
std::vector<KernelTime> parse_kernel_times(std::string_view text, std::string* bad);

// What settings() ask for; zero where nothing is said of the kernel.
std::chrono::nanoseconds modelled_time(const std::string& kernel, std::uint64_t blocks);
// Whether anything is said at all.
bool times_are_modelled();

}  // namespace headrace::softgpu
