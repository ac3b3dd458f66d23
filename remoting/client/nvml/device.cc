// What a device of the reservation is.
#include "client/nvml/answers.h"

namespace headrace::client::nvml {
namespace {

template <typename Info>
void put_pci(const Device& device, Info& out) {
  out = Info{};
  out.domain = static_cast<unsigned>(device.pci_domain);
  out.bus = static_cast<unsigned>(device.pci_bus);
  out.device = static_cast<unsigned>(device.pci_device);
}

// The newer form has eight digits of domain.
std::string long_pci(const Device& device) { return "0000" + device.pci; }

// NVML's numbers of the architectures, by compute capability.
unsigned architecture_of(const Device& device) {
  constexpr unsigned kepler = 2, maxwell = 3, pascal = 4, volta = 5, turing = 6, ampere = 7;
  constexpr unsigned ada = 8, hopper = 9, blackwell = 10, unknown_architecture = 0xffffffff;
  switch (device.major) {
    case 3:
      return kepler;
    case 5:
      return maxwell;
    case 6:
      return pascal;
    case 7:
      return device.minor < 5 ? volta : turing;
    case 8:
      return device.minor < 9 ? ampere : ada;
    case 9:
      return hopper;
    case 10:
    case 11:
    case 12:
      return blackwell;
    default:
      return unknown_architecture;
  }
}

Return put_number(const void* handle, unsigned* out, unsigned value) {
  return with_device(handle, [&](const Device&, std::size_t) { return put(out, value); });
}

}  // namespace

HEADRACE_NVML int nvmlDeviceGetIndex(void* handle, unsigned* out) {
  return with_device(handle, [&](const Device&, std::size_t index) {
    return put(out, static_cast<unsigned>(index));
  });
}
HEADRACE_NVML int nvmlDeviceGetMinorNumber(void* handle, unsigned* out) {
  return nvmlDeviceGetIndex(handle, out);
}

HEADRACE_NVML int nvmlDeviceGetName(void* handle, char* out, unsigned size) {
  return with_device(
      handle, [&](const Device& device, std::size_t) { return put_text(device.name, out, size); });
}

HEADRACE_NVML int nvmlDeviceGetUUID(void* handle, char* out, unsigned size) {
  return with_device(
      handle, [&](const Device& device, std::size_t) { return put_text(device.uuid, out, size); });
}

HEADRACE_NVML int nvmlDeviceGetPciInfo_v3(void* handle, PciInfoV3* out) {
  return with_device(handle, [&](const Device& device, std::size_t) {
    if (out == nullptr) return invalid_argument;
    put_pci(device, *out);
    put_text(device.pci, out->bus_id_legacy, sizeof out->bus_id_legacy);
    return put_text(long_pci(device), out->bus_id, sizeof out->bus_id);
  });
}

HEADRACE_NVML int nvmlDeviceGetPciInfo_v2(void* handle, PciInfoV2* out) {
  return with_device(handle, [&](const Device& device, std::size_t) {
    if (out == nullptr) return invalid_argument;
    put_pci(device, *out);
    return put_text(device.pci, out->bus_id, sizeof out->bus_id);
  });
}
HEADRACE_NVML int nvmlDeviceGetPciInfo(void* handle, PciInfoV2* out) {
  return nvmlDeviceGetPciInfo_v2(handle, out);
}

HEADRACE_NVML int nvmlDeviceGetPciInfoExt(void* handle, PciInfoExt* out) {
  return with_device(handle, [&](const Device& device, std::size_t) {
    if (out == nullptr) return invalid_argument;
    if (out->version != pci_info_ext_version) return argument_version_mismatch;
    put_pci(device, *out);
    out->version = pci_info_ext_version;
    return put_text(long_pci(device), out->bus_id, sizeof out->bus_id);
  });
}

HEADRACE_NVML int nvmlDeviceGetCudaComputeCapability(void* handle, int* major, int* minor) {
  return with_device(handle, [&](const Device& device, std::size_t) {
    if (major == nullptr || minor == nullptr) return invalid_argument;
    if (device.major == 0) return not_supported;
    *major = device.major;
    *minor = device.minor;
    return success;
  });
}

HEADRACE_NVML int nvmlDeviceGetArchitecture(void* handle, unsigned* out) {
  return with_device(
      handle, [&](const Device& device, std::size_t) { return put(out, architecture_of(device)); });
}

// A slice shows itself as a GPU that is not divided, with no display, that any process may use.
HEADRACE_NVML int nvmlDeviceIsMigDeviceHandle(void* handle, unsigned* out) {
  return put_number(handle, out, 0);
}
HEADRACE_NVML int nvmlDeviceGetMaxMigDeviceCount(void* handle, unsigned* out) {
  return put_number(handle, out, 0);
}
HEADRACE_NVML int nvmlDeviceGetDisplayMode(void* handle, unsigned* out) {
  return put_number(handle, out, 0);
}
HEADRACE_NVML int nvmlDeviceGetDisplayActive(void* handle, unsigned* out) {
  return put_number(handle, out, 0);
}
HEADRACE_NVML int nvmlDeviceGetComputeMode(void* handle, unsigned* out) {
  return put_number(handle, out, 0);
}

}  // namespace headrace::client::nvml
