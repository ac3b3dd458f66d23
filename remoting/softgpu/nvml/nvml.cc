// libnvidia-ml.so.1 of the software GPU: the devices of this machine, for inventories. What a
// software device has not (sensors, clocks, MIG) is NOT_SUPPORTED; a name that is missing here is
// reported by callers as "function not found".
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "remoting/softgpu/device/chunk_store.h"
#include "remoting/softgpu/device/condition.h"
#include "remoting/softgpu/device/identity.h"
#include "remoting/softgpu/device/settings.h"
#include "remoting/softgpu/nvml/answers.h"
#include "remoting/softgpu/nvml/types.h"

namespace headrace::softgpu::nvml {

std::atomic<int> initialized{0};
char handle_bytes[kMaxDevices];

const DeviceIdentity* find(const void* handle) {
  const std::vector<DeviceIdentity>& all = machine_devices();
  const char* at = static_cast<const char*>(handle);
  for (std::size_t i = 0; i < all.size() && i < kMaxDevices; ++i) {
    if (at == &handle_bytes[i]) return &all[i];
  }
  return nullptr;
}

namespace {

Return put_text(const std::string& text, char* out, unsigned size) {
  if (out == nullptr) return kInvalidArgument;
  if (text.size() + 1 > size) return kInsufficientSize;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

Return put_handle(int index, void** out) {
  if (out == nullptr) return kInvalidArgument;
  if (index < 0) return kNotFound;
  *out = &handle_bytes[index];
  return kSuccess;
}

// The device's memory as all processes of the state directory use it. Without such a directory
// memory is private to each process, so nothing can be seen of it from here.
std::vector<ProcessUsage> usage_of(const DeviceIdentity& device) {
  if (settings().state_dir.empty()) return {};
  static std::mutex mutex;
  static std::unique_ptr<ChunkStore>* stores = new std::unique_ptr<ChunkStore>[kMaxDevices];
  std::lock_guard<std::mutex> guard(mutex);
  std::unique_ptr<ChunkStore>& store = stores[device.index];
  if (store == nullptr) {
    std::string why;
    store = ChunkStore::open(settings().state_dir, device.index, device.memory_bytes, &why);
  }
  return store != nullptr ? store->usage() : std::vector<ProcessUsage>{};
}

Memory memory_of(const DeviceIdentity& device) {
  Memory out{};
  out.total = device.memory_bytes / kChunkBytes * kChunkBytes;
  for (const ProcessUsage& one : usage_of(device)) out.used += one.bytes;
  out.free = out.total - std::min(out.used, out.total);
  return out;
}

// Processes with memory, and those with a context only.
std::vector<ProcessUsage> processes_of(const DeviceIdentity& device) {
  std::vector<ProcessUsage> all = usage_of(device);
  for (const ComputeUsage& one : Condition::of(device.index).usage()) {
    const bool known = std::any_of(all.begin(), all.end(),
                                   [&](const ProcessUsage& other) { return other.pid == one.pid; });
    if (!known) all.push_back({one.pid, 0});
  }
  return all;
}

Return put_processes(const DeviceIdentity& device, unsigned* count, ProcessInfo* out) {
  if (count == nullptr) return kInvalidArgument;
  std::vector<ProcessUsage> all = processes_of(device);
  unsigned room = *count;
  *count = static_cast<unsigned>(all.size());
  if (all.size() > room) return kInsufficientSize;
  if (out == nullptr && !all.empty()) return kInvalidArgument;
  for (std::size_t i = 0; i < all.size(); ++i) {
    out[i] = {all[i].pid, all[i].bytes, 0xffffffffu, 0xffffffffu};
  }
  return kSuccess;
}

Return start(unsigned flags) {
  constexpr unsigned kNoGpus = 1, kNoAttach = 2;
  if ((flags & ~(kNoGpus | kNoAttach)) != 0) return kInvalidArgument;
  if (machine_devices().empty() && (flags & kNoGpus) == 0) return kDriverNotLoaded;
  initialized.fetch_add(1);
  return kSuccess;
}

}  // namespace

NVML_EXPORT int nvmlInit_v2() { return start(0); }
NVML_EXPORT int nvmlInit() { return start(0); }
NVML_EXPORT int nvmlInitWithFlags(unsigned flags) { return start(flags); }

NVML_EXPORT int nvmlShutdown() {
  int before = initialized.load();
  while (before > 0 && !initialized.compare_exchange_weak(before, before - 1)) {
  }
  return before > 0 ? kSuccess : kUninitialized;
}

NVML_EXPORT const char* nvmlErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "success";
    case kUninitialized:
      return "the library was not initialised";
    case kInvalidArgument:
      return "an argument is not valid";
    case kNotSupported:
      return "the software GPU has no such thing";
    case kNoPermission:
      return "not permitted";
    case kNotFound:
      return "not found";
    case kInsufficientSize:
      return "the buffer is too small";
    case kDriverNotLoaded:
      return "there are no devices";
    case kFunctionNotFound:
      return "the function is not there";
    case kMemory:
      return "out of memory";
    case kArgumentVersionMismatch:
      return "a structure's version is not known";
    default:
      return "unknown error";
  }
}

NVML_EXPORT int nvmlSystemGetDriverVersion(char* out, unsigned size) {
  return with_library([&] { return put_text(kDriverRelease, out, size); });
}
NVML_EXPORT int nvmlSystemGetNVMLVersion(char* out, unsigned size) {
  return with_library([&] { return put_text(std::string("13.") + kDriverRelease, out, size); });
}
NVML_EXPORT int nvmlSystemGetCudaDriverVersion(int* version) {
  return with_library([&] {
    if (version == nullptr) return kInvalidArgument;
    *version = kDriverVersion;
    return kSuccess;
  });
}
NVML_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return nvmlSystemGetCudaDriverVersion(version);
}

NVML_EXPORT int nvmlSystemGetProcessName(unsigned pid, char* out, unsigned size) {
  return with_library([&] {
    char path[256];
    std::string link = "/proc/" + std::to_string(pid) + "/exe";
    ssize_t n = readlink(link.c_str(), path, sizeof path);
    if (n <= 0) return kNotFound;
    return put_text(std::string(path, static_cast<std::size_t>(n)), out, size);
  });
}

NVML_EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  return with_library([&] {
    if (count == nullptr) return kInvalidArgument;
    *count = static_cast<unsigned>(machine_devices().size());
    return kSuccess;
  });
}
NVML_EXPORT int nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

NVML_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** out) {
  return with_library([&] {
    if (index >= machine_devices().size()) return kInvalidArgument;
    return put_handle(static_cast<int>(index), out);
  });
}
NVML_EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, void** out) {
  return nvmlDeviceGetHandleByIndex_v2(index, out);
}

NVML_EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, void** out) {
  return with_library([&] {
    if (uuid == nullptr) return kInvalidArgument;
    int found = -1;
    for (const DeviceIdentity& device : machine_devices()) {
      if (device.uuid_text() == uuid) found = device.index;
    }
    return put_handle(found, out);
  });
}

NVML_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** out) {
  return with_library([&] {
    if (address == nullptr) return kInvalidArgument;
    return put_handle(find_by_pci(address), out);
  });
}
NVML_EXPORT int nvmlDeviceGetHandleByPciBusId(const char* address, void** out) {
  return nvmlDeviceGetHandleByPciBusId_v2(address, out);
}

NVML_EXPORT int nvmlDeviceGetIndex(void* handle, unsigned* out) {
  return with_identity(handle, [&](const DeviceIdentity& device) {
    if (out == nullptr) return kInvalidArgument;
    *out = static_cast<unsigned>(device.index);
    return kSuccess;
  });
}
NVML_EXPORT int nvmlDeviceGetMinorNumber(void* handle, unsigned* out) {
  return nvmlDeviceGetIndex(handle, out);
}

NVML_EXPORT int nvmlDeviceGetName(void* handle, char* out, unsigned size) {
  return with_identity(
      handle, [&](const DeviceIdentity& device) { return put_text(device.name, out, size); });
}

NVML_EXPORT int nvmlDeviceGetUUID(void* handle, char* out, unsigned size) {
  return with_identity(handle, [&](const DeviceIdentity& device) {
    return put_text(device.uuid_text(), out, size);
  });
}

NVML_EXPORT int nvmlDeviceGetPciInfo_v3(void* handle, PciInfoV3* out) {
  return with_identity(handle, [&](const DeviceIdentity& device) {
    if (out == nullptr) return kInvalidArgument;
    *out = PciInfoV3{};
    out->domain = static_cast<unsigned>(device.pci_domain);
    out->bus = static_cast<unsigned>(device.pci_bus);
    out->device = static_cast<unsigned>(device.pci_device);
    put_text(device.pci_text(), out->bus_id_legacy, sizeof out->bus_id_legacy);
    // The new form has eight digits of domain.
    return put_text("0000" + device.pci_text(), out->bus_id, sizeof out->bus_id);
  });
}

NVML_EXPORT int nvmlDeviceGetPciInfo_v2(void* handle, PciInfoV2* out) {
  return with_identity(handle, [&](const DeviceIdentity& device) {
    if (out == nullptr) return kInvalidArgument;
    *out = PciInfoV2{};
    out->domain = static_cast<unsigned>(device.pci_domain);
    out->bus = static_cast<unsigned>(device.pci_bus);
    out->device = static_cast<unsigned>(device.pci_device);
    return put_text(device.pci_text(), out->bus_id, sizeof out->bus_id);
  });
}

NVML_EXPORT int nvmlDeviceGetMemoryInfo(void* handle, Memory* out) {
  return with_device(handle, [&](const DeviceIdentity& device) {
    if (out == nullptr) return kInvalidArgument;
    *out = memory_of(device);
    return kSuccess;
  });
}

NVML_EXPORT int nvmlDeviceGetMemoryInfo_v2(void* handle, MemoryV2* out) {
  return with_device(handle, [&](const DeviceIdentity& device) {
    if (out == nullptr) return kInvalidArgument;
    if (out->version != kMemoryV2Version) return kArgumentVersionMismatch;
    Memory memory = memory_of(device);
    out->total = memory.total;
    out->reserved = 0;
    out->free = memory.free;
    out->used = memory.used;
    return kSuccess;
  });
}

NVML_EXPORT int nvmlDeviceGetUtilizationRates(void* handle, Utilization* out) {
  return with_device(handle, [&](const DeviceIdentity& device) {
    if (out == nullptr) return kInvalidArgument;
    Memory memory = memory_of(device);
    *out = {Condition::of(device.index).busy_percent(),
            static_cast<unsigned>(memory.total ? memory.used * 100 / memory.total : 0)};
    return kSuccess;
  });
}

NVML_EXPORT int nvmlDeviceGetCudaComputeCapability(void* handle, int* major, int* minor) {
  return with_device(handle, [&](const DeviceIdentity& device) {
    if (major == nullptr || minor == nullptr) return kInvalidArgument;
    *major = device.limits->major;
    *minor = device.limits->minor;
    return kSuccess;
  });
}

NVML_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count,
                                                        ProcessInfo* out) {
  return with_device(
      handle, [&](const DeviceIdentity& device) { return put_processes(device, count, out); });
}
NVML_EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(void* handle, unsigned* count,
                                                        ProcessInfo* out) {
  return nvmlDeviceGetComputeRunningProcesses_v3(handle, count, out);
}

NVML_EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(void* handle, unsigned* count,
                                                         ProcessInfo*) {
  return with_device(handle, [&](const DeviceIdentity&) {
    if (count == nullptr) return kInvalidArgument;
    *count = 0;
    return kSuccess;
  });
}

NVML_EXPORT int nvmlDeviceGetComputeMode(void* handle, int* out) {
  return with_device(handle, [&](const DeviceIdentity&) {
    if (out == nullptr) return kInvalidArgument;
    *out = 0;
    return kSuccess;
  });
}

NVML_EXPORT int nvmlDeviceIsMigDeviceHandle(void* handle, unsigned* out) {
  return with_device(handle, [&](const DeviceIdentity&) {
    if (out == nullptr) return kInvalidArgument;
    *out = 0;
    return kSuccess;
  });
}

NVML_EXPORT int nvmlDeviceGetMaxMigDeviceCount(void* handle, unsigned* out) {
  return with_device(handle, [&](const DeviceIdentity&) {
    if (out == nullptr) return kInvalidArgument;
    *out = 0;
    return kSuccess;
  });
}

// What a software device has not.
#define NVML_NOT_SUPPORTED(name, ...)                                                \
  NVML_EXPORT int name(void* handle __VA_OPT__(, ) __VA_ARGS__) {                    \
    return with_device(handle, [](const DeviceIdentity&) { return kNotSupported; }); \
  }
NVML_NOT_SUPPORTED(nvmlDeviceGetMigMode, unsigned*, unsigned*)
NVML_NOT_SUPPORTED(nvmlDeviceGetTemperature, int, unsigned*)
NVML_NOT_SUPPORTED(nvmlDeviceGetTemperatureThreshold, int, unsigned*)
NVML_NOT_SUPPORTED(nvmlDeviceGetPowerUsage, unsigned*)
NVML_NOT_SUPPORTED(nvmlDeviceGetPowerManagementLimit, unsigned*)
NVML_NOT_SUPPORTED(nvmlDeviceGetPowerManagementLimitConstraints, unsigned*, unsigned*)
NVML_NOT_SUPPORTED(nvmlDeviceGetEnforcedPowerLimit, unsigned*)
NVML_NOT_SUPPORTED(nvmlDeviceGetTotalEnergyConsumption, unsigned long long*)
NVML_NOT_SUPPORTED(nvmlDeviceGetFanSpeed, unsigned*)
NVML_NOT_SUPPORTED(nvmlDeviceGetPerformanceState, int*)
NVML_NOT_SUPPORTED(nvmlDeviceGetClockInfo, int, unsigned*)
NVML_NOT_SUPPORTED(nvmlDeviceGetMaxClockInfo, int, unsigned*)
NVML_NOT_SUPPORTED(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long*)
NVML_NOT_SUPPORTED(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long*)
NVML_NOT_SUPPORTED(nvmlDeviceGetRetiredPages, int, unsigned*, unsigned long long*)
NVML_NOT_SUPPORTED(nvmlDeviceGetRetiredPagesPendingStatus, int*)
NVML_NOT_SUPPORTED(nvmlDeviceGetPersistenceMode, int*)
NVML_NOT_SUPPORTED(nvmlDeviceGetSerial, char*, unsigned)
NVML_NOT_SUPPORTED(nvmlDeviceGetBoardPartNumber, char*, unsigned)
NVML_NOT_SUPPORTED(nvmlDeviceGetBrand, int*)
NVML_NOT_SUPPORTED(nvmlDeviceGetCurrPcieLinkGeneration, unsigned*)
NVML_NOT_SUPPORTED(nvmlDeviceGetCurrPcieLinkWidth, unsigned*)
NVML_NOT_SUPPORTED(nvmlDeviceGetMaxPcieLinkGeneration, unsigned*)
NVML_NOT_SUPPORTED(nvmlDeviceGetMaxPcieLinkWidth, unsigned*)
NVML_NOT_SUPPORTED(nvmlDeviceGetNvLinkState, unsigned, int*)
NVML_NOT_SUPPORTED(nvmlDeviceGetVirtualizationMode, int*)
NVML_NOT_SUPPORTED(nvmlDeviceGetMigDeviceHandleByIndex, unsigned, void**)

}  // namespace headrace::softgpu::nvml
