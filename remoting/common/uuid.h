// How CUDA and NVML write a device's UUID.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace headrace {

// "GPU-" and the 16 bytes as 8-4-4-4-12 hexadecimal digits.
inline std::string uuid_text(const std::uint8_t* uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char pair[3];
    std::snprintf(pair, sizeof pair, "%02x", uuid[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += pair;
  }
  return text;
}

}  // namespace headrace
