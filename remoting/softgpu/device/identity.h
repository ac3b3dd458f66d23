// Who each software device is: the same answers in libcuda and libnvidia-ml.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "remoting/softgpu/device/limits.h"

namespace headrace::softgpu {

inline constexpr int kDriverVersion = 13000;
inline constexpr const char* kDriverRelease = "580.65.06";

struct DeviceIdentity {
  int index;  // on the machine, before CUDA_VISIBLE_DEVICES
  std::string name;
  std::array<unsigned char, 16> uuid;
  int pci_domain, pci_bus, pci_device;
  std::uint64_t memory_bytes;
  const Limits* limits;

  std::string uuid_text() const;  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
  std::string pci_text() const;   // "0000:01:00.0"
};

// All devices of the machine, in order.
const std::vector<DeviceIdentity>& machine_devices();

// Indices into machine_devices() that CUDA_VISIBLE_DEVICES leaves, in its order. A list ends at its
// first entry that names no device, as the real driver's does.
std::vector<int> visible_devices();

// Device whose PCI address equals the text ("domain:bus:device.function", domain optional); -1:
// none.
int find_by_pci(const std::string& text);

}  // namespace headrace::softgpu
