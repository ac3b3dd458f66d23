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
  already_initialized = 5,
  not_found = 6,
  insufficient_size = 7,
  insufficient_power = 8,
  driver_not_loaded = 9,
  timeout = 10,
  irq_issue = 11,
  library_not_found = 12,
  function_not_found = 13,
  corrupted_inforom = 14,
  gpu_is_lost = 15,
  reset_required = 16,
  operating_system = 17,
  lib_rm_version_mismatch = 18,
  in_use = 19,
  out_of_memory = 20,
  no_data = 21,
  vgpu_ecc_not_supported = 22,
  insufficient_resources = 23,
  frequency_not_supported = 24,
  argument_version_mismatch = 25,
  deprecated = 26,
  not_ready = 27,
  gpu_not_found = 28,
  invalid_state = 29,
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

struct PciInfoExt {
  unsigned version;
  unsigned domain, bus, device, device_id, subsystem_id, base_class, sub_class;
  char bus_id[32];
};
inline constexpr unsigned pci_info_ext_version = 0x01000040;
static_assert(sizeof(PciInfoExt) == 0x40);

struct Bar1Memory {
  unsigned long long total, free, used;
};

struct ProcessInfoV1 {
  unsigned pid;
  unsigned long long used_memory;
};
static_assert(sizeof(ProcessInfoV1) == 16);

// Of the second and the third form.
struct ProcessInfoV2 {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(ProcessInfoV2) == 24);
inline constexpr unsigned no_instance = 0xffffffff;

}  // namespace headrace::client::nvml
