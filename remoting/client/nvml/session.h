// What NVML's answers come from: a session of its own, so that programs that only look at the GPUs
// need no libcuda. Opened by the first initialisation, kept until the process is gone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/nvml/types.h"
#include "gen/messages.h"

namespace headrace::client::nvml {

struct Device {
  std::string name;
  std::string uuid;  // GPU-…
  std::string pci;   // domain:bus:device.0, four digits of domain
  int pci_domain = 0;
  int pci_bus = 0;
  int pci_device = 0;
  std::uint64_t total_memory = 0;
  int major = 0;
  int minor = 0;
};

// Connects unless that has been done; driver_not_loaded where there is no reservation or server.
Return open_session();
// All devices of the reservation: CUDA_VISIBLE_DEVICES is not for NVML.
const std::vector<Device>& devices();
int cuda_version();
// Asks the server. The slice's memory, as all processes of the reservation use it.
Return memory_of(std::size_t index, Memory& memory);

}  // namespace headrace::client::nvml
