// Start and end, versions, and how devices are found.
#include <atomic>
#include <cstdio>

#include "client/nvml/answers.h"

namespace headrace::client::nvml {
namespace {

std::atomic<int> users{0};

Return start() {
  return guarded([] {
    const Return opened = open_watch();
    if (opened == success) users.fetch_add(1);
    return opened;
  });
}

template <typename Matches>
Return put_handle(const Reservation& known, void** out, Matches matches) {
  if (out == nullptr) return invalid_argument;
  for (std::size_t i = 0; i < known.devices.size() && i < max_devices; ++i) {
    if (matches(known.devices[i])) {
      *out = &handle_bytes[i];
      return success;
    }
  }
  return not_found;
}

}  // namespace

char handle_bytes[max_devices];

bool initialised() { return users.load() > 0; }

HEADRACE_NVML int nvmlInit_v2() { return start(); }
HEADRACE_NVML int nvmlInit() { return start(); }
HEADRACE_NVML int nvmlInitWithFlags(unsigned) { return start(); }

HEADRACE_NVML int nvmlShutdown() {
  int before = users.load();
  while (before > 0 && !users.compare_exchange_weak(before, before - 1)) {
  }
  return before > 0 ? success : uninitialized;
}

HEADRACE_NVML const char* nvmlErrorString(int result) {
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
    case already_initialized:
      return "the library was initialised before";
    case not_found:
      return "not found";
    case insufficient_size:
      return "the buffer is too small";
    case insufficient_power:
      return "the GPU has not enough power";
    case driver_not_loaded:
      return "no reservation: start the program with 'headrace run'";
    case timeout:
      return "the time is over";
    case irq_issue:
      return "the GPU's interrupts do not arrive";
    case library_not_found:
      return "the library is not there";
    case function_not_found:
      return "the library has no such function";
    case corrupted_inforom:
      return "the GPU's information store is damaged";
    case gpu_is_lost:
      return "the connection to the server is lost, or the reservation is over";
    case reset_required:
      return "the GPU needs a reset";
    case operating_system:
      return "the operating system forbids it";
    case lib_rm_version_mismatch:
      return "driver and library do not belong together";
    case in_use:
      return "in use";
    case out_of_memory:
      return "out of memory";
    case no_data:
      return "there is no data";
    case vgpu_ecc_not_supported:
      return "not with error correction";
    case insufficient_resources:
      return "not enough resources";
    case frequency_not_supported:
      return "no such frequency";
    case argument_version_mismatch:
      return "a structure's version is not known";
    case deprecated:
      return "the function is not supported any more";
    case not_ready:
      return "not ready yet";
    case gpu_not_found:
      return "no such GPU";
    case invalid_state:
      return "not in this state";
    default:
      return "unknown error";
  }
}

HEADRACE_NVML int nvmlSystemGetDriverVersion(char* out, unsigned size) {
  return with_library([&](const Reservation& known) { return put_text(known.driver, out, size); });
}
HEADRACE_NVML int nvmlSystemGetNVMLVersion(char* out, unsigned size) {
  return with_library([&](const Reservation& known) {
    return put_text(std::to_string(known.cuda_version / 1000) + "." + known.driver, out, size);
  });
}
HEADRACE_NVML int nvmlSystemGetCudaDriverVersion(int* version) {
  return with_library([&](const Reservation& known) { return put(version, known.cuda_version); });
}
HEADRACE_NVML int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return nvmlSystemGetCudaDriverVersion(version);
}

HEADRACE_NVML int nvmlDeviceGetCount_v2(unsigned* count) {
  return with_library([&](const Reservation& known) {
    return put(count, static_cast<unsigned>(known.devices.size()));
  });
}
HEADRACE_NVML int nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }
HEADRACE_NVML int nvmlUnitGetCount(unsigned* count) {
  return with_library([&](const Reservation&) { return put(count, 0u); });
}

HEADRACE_NVML int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** out) {
  return with_library([&](const Reservation& known) {
    if (index >= known.devices.size() || index >= max_devices) return invalid_argument;
    return put<void*>(out, &handle_bytes[index]);
  });
}
HEADRACE_NVML int nvmlDeviceGetHandleByIndex(unsigned index, void** out) {
  return nvmlDeviceGetHandleByIndex_v2(index, out);
}

HEADRACE_NVML int nvmlDeviceGetHandleByUUID(const char* uuid, void** out) {
  return with_library([&](const Reservation& known) {
    if (uuid == nullptr) return invalid_argument;
    return put_handle(known, out, [&](const Device& device) { return device.uuid == uuid; });
  });
}

// A slice has no serial number.
HEADRACE_NVML int nvmlDeviceGetHandleBySerial(const char* serial, void** out) {
  return with_library([&](const Reservation&) {
    return serial == nullptr || out == nullptr ? invalid_argument : not_found;
  });
}

HEADRACE_NVML int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** out) {
  return with_library([&](const Reservation& known) {
    int domain = 0;
    int bus = 0;
    int slot = 0;
    if (address == nullptr) return invalid_argument;
    if (std::sscanf(address, "%x:%x:%x", &domain, &bus, &slot) != 3) {
      domain = 0;
      if (std::sscanf(address, "%x:%x", &bus, &slot) != 2) return invalid_argument;
    }
    return put_handle(known, out, [&](const Device& device) {
      return device.pci_domain == domain && device.pci_bus == bus && device.pci_device == slot;
    });
  });
}
HEADRACE_NVML int nvmlDeviceGetHandleByPciBusId(const char* address, void** out) {
  return nvmlDeviceGetHandleByPciBusId_v2(address, out);
}

}  // namespace headrace::client::nvml
