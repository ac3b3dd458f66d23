// What an image says about one kernel without being loaded.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace headrace::driverabi {

struct ParamSlot {
  std::uint32_t offset = 0;
  std::uint32_t size = 0;
  bool operator==(const ParamSlot&) const = default;
};

struct KernelLayout {
  std::string name;
  std::vector<ParamSlot> params;  // in order of the kernel's arguments
  std::uint32_t param_bytes = 0;
  // Attributes, where the image carries them; 0 = not said.
  std::uint32_t registers = 0;
  std::uint32_t shared_bytes = 0;
  std::uint32_t local_bytes = 0;
  std::uint32_t max_threads = 0;
};

}  // namespace headrace::driverabi
