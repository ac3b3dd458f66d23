// NVML's own types as far as this library answers with them, laid out as its documentation says.
// The vendor's header is not part of the build.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::softgpu::nvml {

enum Return : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kAlreadyInitialized = 5,
  kNotFound = 6,
  kInsufficientSize = 7,
  kInsufficientPower = 8,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kIrqIssue = 11,
  kLibraryNotFound = 12,
  kFunctionNotFound = 13,
  kCorruptedInfoRom = 14,
  kGpuIsLost = 15,
  kResetRequired = 16,
  kOperatingSystem = 17,
  kLibRmVersionMismatch = 18,
  kInUse = 19,
  kMemory = 20,
  kNoData = 21,
  kVgpuEccNotSupported = 22,
  kInsufficientResources = 23,
  kFreqNotSupported = 24,
  kArgumentVersionMismatch = 25,
  kDeprecated = 26,
  kNotReady = 27,
  kGpuNotFound = 28,
  kInvalidState = 29,
  kUnknown = 999,
};

struct Memory {
  unsigned long long total, free, used;
};

struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
inline constexpr unsigned kMemoryV2Version = 0x02000028;
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

struct Utilization {
  unsigned gpu, memory;
};

struct ProcessUtilization {
  unsigned pid;
  unsigned long long microseconds;  // since 1970
  unsigned sm, memory, encoder, decoder;
};
static_assert(sizeof(ProcessUtilization) == 32);

struct EventDataV1 {
  void* device;
  unsigned long long type, data;
};

struct EventDataV2 {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(EventDataV2) == 32);

struct ProcessInfo {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(ProcessInfo) == 24);

}  // namespace headrace::softgpu::nvml
