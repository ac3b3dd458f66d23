// What the environment asks of the software GPU. Read once, by libcuda and libnvidia-ml alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headrace::softgpu {

struct Settings {
  std::vector<std::uint64_t>
      device_bytes;  // one entry per device; empty: the text was not understood
  int cc_major = 8;
  int cc_minor = 0;
  std::string state_dir;     // empty: device memory is private to the process
  std::string log_path;      // empty: no log
  std::string kernel_times;  // see kernel_times.h
  std::string visible_devices;
  bool has_visible_devices = false;
  bool launch_blocking = false;
  bool eager_loading = false;
  bool skip_sass = false;  // machine code loads, and its kernels complete without doing anything
};

// "2x8GiB", "8GiB", "1x4GiB,1x512MiB"; empty when the text is not of that form.
std::vector<std::uint64_t> parse_devices(const std::string& text);

// "8.0" or "80"; false when the text is neither or the capability is none we know limits for.
bool parse_compute_capability(const std::string& text, int* major, int* minor);

const Settings& settings();

}  // namespace headrace::softgpu
