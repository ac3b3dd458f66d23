// NVML's own types as far as this library answers with them, laid out as its documentation says.
// The vendor's header is not part of the build.
#pragma once

namespace headrace::client::nvml {

enum Return : int {
  success = 0,
  uninitialized = 1,
  invalid_argument = 2,
  not_supported = 3,
  no_permission = 4,
  not_found = 6,
  insufficient_size = 7,
  driver_not_loaded = 9,
  gpu_is_lost = 15,
  out_of_memory = 20,
  argument_version_mismatch = 25,
  unknown = 999,
};

struct Memory {
  unsigned long long total, free, used;
};

struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
inline constexpr unsigned memory_v2_version = 0x02000028;
static_assert(sizeof(MemoryV2) == 0x28);

struct PciInfoV2 {
  char bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  unsigned reserved[4];
};

struct PciInfoV3 {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(PciInfoV3) == 68);

}  // namespace headrace::client::nvml
