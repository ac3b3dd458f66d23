// libnvidia-ml.so.1 of the client: the GPUs of the reservation and nothing else of this machine. A
// slice has no sensors of its own; a function that is missing here is reported by callers as
// "function not found".
#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>

#include "client/nvml/session.h"
#include "client/nvml/types.h"

#define NVML_EXPORT extern "C" [[gnu::visibility("default")]]

namespace headrace::client::nvml {
namespace {

std::atomic<int> initialised{0};

// Handles are addresses of these bytes: valid as long as the library is loaded.
constexpr std::size_t max_devices = 64;
char handle_bytes[max_devices];

template <typename Body>
Return with_library(Body&& body) noexcept {
  if (initialised.load() <= 0) return uninitialized;
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return out_of_memory;
  } catch (...) {
    return unknown;
  }
}

template <typename Body>
Return with_device(const void* handle, Body&& body) noexcept {
  return with_library([&] {
    const char* const at = static_cast<const char*>(handle);
    for (std::size_t i = 0; i < devices().size() && i < max_devices; ++i) {
      if (at == &handle_bytes[i]) return body(devices()[i], i);
    }
    return invalid_argument;
  });
}

Return put_text(const std::string& text, char* out, unsigned size) {
  if (out == nullptr) return invalid_argument;
  if (text.size() + 1 > size) return insufficient_size;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return success;
}

template <typename Matches>
Return put_handle(void** out, Matches matches) {
  if (out == nullptr) return invalid_argument;
  for (std::size_t i = 0; i < devices().size() && i < max_devices; ++i) {
    if (matches(devices()[i])) {
      *out = &handle_bytes[i];
      return success;
    }
  }
  return not_found;
}

template <typename T>
Return put(T* out, T value) {
  if (out == nullptr) return invalid_argument;
  *out = value;
  return success;
}

Return start() noexcept {
  try {
    const Return opened = open_session();
    if (opened == success) initialised.fetch_add(1);
    return opened;
  } catch (const std::bad_alloc&) {
    return out_of_memory;
  } catch (...) {
    return unknown;
  }
}

template <typename Info>
void put_pci(const Device& device, Info& out) {
  out = Info{};
  out.domain = static_cast<unsigned>(device.pci_domain);
  out.bus = static_cast<unsigned>(device.pci_bus);
  out.device = static_cast<unsigned>(device.pci_device);
}

// Programs compare it with the first driver release that has a CUDA version. Sessions do not tell
// the server's own release; this is the first with CUDA 13.0, the version that the client
// implements.
constexpr const char* driver_release = "580.65.06";

}  // namespace

NVML_EXPORT int nvmlInit_v2() { return start(); }
NVML_EXPORT int nvmlInit() { return start(); }
NVML_EXPORT int nvmlInitWithFlags(unsigned) { return start(); }

NVML_EXPORT int nvmlShutdown() {
  int before = initialised.load();
  while (before > 0 && !initialised.compare_exchange_weak(before, before - 1)) {
  }
  return before > 0 ? success : uninitialized;
}

NVML_EXPORT const char* nvmlErrorString(int result) {
  switch (result) {
    case success:
      return "success";
    case uninitialized:
      return "the library was not initialised";
    case invalid_argument:
      return "an argument is not valid";
    case not_supported:
      return "a slice has no such thing";
    case no_permission:
      return "not permitted";
    case not_found:
      return "not found";
    case insufficient_size:
      return "the buffer is too small";
    case driver_not_loaded:
      return "no reservation: start the program with 'headrace run'";
    case gpu_is_lost:
      return "the connection to the server is lost";
    case out_of_memory:
      return "out of memory";
    case argument_version_mismatch:
      return "a structure's version is not known";
    default:
      return "unknown error";
  }
}

NVML_EXPORT int nvmlSystemGetDriverVersion(char* out, unsigned size) {
  return with_library([&] { return put_text(driver_release, out, size); });
}
NVML_EXPORT int nvmlSystemGetNVMLVersion(char* out, unsigned size) {
  return with_library([&] { return put_text(std::string("13.") + driver_release, out, size); });
}
NVML_EXPORT int nvmlSystemGetCudaDriverVersion(int* version) {
  return with_library([&] { return put(version, cuda_version()); });
}
NVML_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return nvmlSystemGetCudaDriverVersion(version);
}

NVML_EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  return with_library([&] { return put(count, static_cast<unsigned>(devices().size())); });
}
NVML_EXPORT int nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

NVML_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** out) {
  return with_library([&] {
    if (out == nullptr || index >= devices().size() || index >= max_devices) {
      return invalid_argument;
    }
    *out = &handle_bytes[index];
    return success;
  });
}
NVML_EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, void** out) {
  return nvmlDeviceGetHandleByIndex_v2(index, out);
}

NVML_EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, void** out) {
  return with_library([&] {
    if (uuid == nullptr) return invalid_argument;
    return put_handle(out, [&](const Device& device) { return device.uuid == uuid; });
  });
}

NVML_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** out) {
  return with_library([&] {
    int domain = 0;
    int bus = 0;
    int slot = 0;
    if (address == nullptr) return invalid_argument;
    if (std::sscanf(address, "%x:%x:%x", &domain, &bus, &slot) != 3) {
      domain = 0;
      if (std::sscanf(address, "%x:%x", &bus, &slot) != 2) return invalid_argument;
    }
    return put_handle(out, [&](const Device& device) {
      return device.pci_domain == domain && device.pci_bus == bus && device.pci_device == slot;
    });
  });
}
NVML_EXPORT int nvmlDeviceGetHandleByPciBusId(const char* address, void** out) {
  return nvmlDeviceGetHandleByPciBusId_v2(address, out);
}

NVML_EXPORT int nvmlDeviceGetIndex(void* handle, unsigned* out) {
  return with_device(handle, [&](const Device&, std::size_t index) {
    return put(out, static_cast<unsigned>(index));
  });
}
NVML_EXPORT int nvmlDeviceGetMinorNumber(void* handle, unsigned* out) {
  return nvmlDeviceGetIndex(handle, out);
}

NVML_EXPORT int nvmlDeviceGetName(void* handle, char* out, unsigned size) {
  return with_device(
      handle, [&](const Device& device, std::size_t) { return put_text(device.name, out, size); });
}

NVML_EXPORT int nvmlDeviceGetUUID(void* handle, char* out, unsigned size) {
  return with_device(
      handle, [&](const Device& device, std::size_t) { return put_text(device.uuid, out, size); });
}

NVML_EXPORT int nvmlDeviceGetPciInfo_v3(void* handle, PciInfoV3* out) {
  return with_device(handle, [&](const Device& device, std::size_t) {
    if (out == nullptr) return invalid_argument;
    put_pci(device, *out);
    put_text(device.pci, out->bus_id_legacy, sizeof out->bus_id_legacy);
    // The new form has eight digits of domain.
    return put_text("0000" + device.pci, out->bus_id, sizeof out->bus_id);
  });
}

NVML_EXPORT int nvmlDeviceGetPciInfo_v2(void* handle, PciInfoV2* out) {
  return with_device(handle, [&](const Device& device, std::size_t) {
    if (out == nullptr) return invalid_argument;
    put_pci(device, *out);
    return put_text(device.pci, out->bus_id, sizeof out->bus_id);
  });
}

NVML_EXPORT int nvmlDeviceGetMemoryInfo(void* handle, Memory* out) {
  return with_device(handle, [&](const Device&, std::size_t index) {
    return out == nullptr ? invalid_argument : memory_of(index, *out);
  });
}

NVML_EXPORT int nvmlDeviceGetMemoryInfo_v2(void* handle, MemoryV2* out) {
  return with_device(handle, [&](const Device&, std::size_t index) {
    if (out == nullptr) return invalid_argument;
    if (out->version != memory_v2_version) return argument_version_mismatch;
    Memory memory{};
    const Return result = memory_of(index, memory);
    if (result == success) {
      out->total = memory.total;
      out->reserved = 0;
      out->free = memory.free;
      out->used = memory.used;
    }
    return result;
  });
}

NVML_EXPORT int nvmlDeviceGetCudaComputeCapability(void* handle, int* major, int* minor) {
  return with_device(handle, [&](const Device& device, std::size_t) {
    if (major == nullptr || minor == nullptr) return invalid_argument;
    *major = device.major;
    *minor = device.minor;
    return success;
  });
}

// Sensors, clocks and modes belong to the whole GPU, which is the administrator's.
#define HEADRACE_NOT_OF_A_SLICE(name, ...)                                                \
  NVML_EXPORT int name(void* handle __VA_OPT__(, ) __VA_ARGS__) {                         \
    return with_device(handle, [](const Device&, std::size_t) { return not_supported; }); \
  }
HEADRACE_NOT_OF_A_SLICE(nvmlDeviceGetUtilizationRates, void*)
HEADRACE_NOT_OF_A_SLICE(nvmlDeviceGetTemperature, int, unsigned*)
HEADRACE_NOT_OF_A_SLICE(nvmlDeviceGetPowerUsage, unsigned*)
HEADRACE_NOT_OF_A_SLICE(nvmlDeviceGetEnforcedPowerLimit, unsigned*)
HEADRACE_NOT_OF_A_SLICE(nvmlDeviceGetFanSpeed, unsigned*)
HEADRACE_NOT_OF_A_SLICE(nvmlDeviceGetClockInfo, int, unsigned*)
HEADRACE_NOT_OF_A_SLICE(nvmlDeviceGetMaxClockInfo, int, unsigned*)
HEADRACE_NOT_OF_A_SLICE(nvmlDeviceGetMigMode, unsigned*, unsigned*)
HEADRACE_NOT_OF_A_SLICE(nvmlDeviceGetEccMode, int*, int*)
HEADRACE_NOT_OF_A_SLICE(nvmlDeviceGetComputeMode, int*)
HEADRACE_NOT_OF_A_SLICE(nvmlDeviceGetPersistenceMode, int*)
HEADRACE_NOT_OF_A_SLICE(nvmlDeviceGetComputeRunningProcesses_v3, unsigned*, void*)
HEADRACE_NOT_OF_A_SLICE(nvmlDeviceGetNvLinkState, unsigned, int*)
#undef HEADRACE_NOT_OF_A_SLICE

}  // namespace headrace::client::nvml
