// What NVML's answers come from: a connection that watches the reservation (PROTOCOL.md §6.2). It
// is not the program's CUDA session: watching takes nothing of a slice, and needs no libcuda.
#pragma once

#include <string>
#include <string_view>
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
  int major = 0;  // 0: the server does not know
  int minor = 0;
};

// What does not change as long as the reservation lives.
struct Reservation {
  std::string driver;  // the server's release
  int cuda_version = 0;
  std::vector<Device> devices;  // all of them: CUDA_VISIBLE_DEVICES is not for NVML
};

// Connects unless that has been done. driver_not_loaded: there is no reservation, or no server.
Return open_watch();
// Of this process; a forked child connects anew. Null: there is none.
const Reservation* reservation();
// Asks the server for the present state; connects again if the connection has ended.
Return ask_state(protocol::StatusReply& state);

// A line in the file that HEADRACE_LOG names.
void log_line(const std::string& text);

}  // namespace headrace::client::nvml
