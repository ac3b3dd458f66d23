// The library in one process: its connection, its devices and its tables. Made by the first cuInit
// and kept until the process is gone, since programs call us from their exit handlers.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/callbacks.h"
#include "client/connection.h"
#include "client/device_addresses.h"
#include "client/host_twins.h"
#include "client/kernel_output.h"
#include "client/memory_ranges.h"
#include "client/state.h"
#include "client/table.h"

namespace headrace::client {

// The API version that this library implements: cuda.h 13.0. A server with a newer driver is used
// at this version, one with an older driver lowers it.
inline constexpr int implemented_version = 13000;

// What every call gets once the connection is lost (PROTOCOL.md §9).
inline constexpr CUresult connection_lost_error = CUDA_ERROR_DEVICE_UNAVAILABLE;

struct LinkState;

struct Process final : Unasked {
  bool change_host_memory(const protocol::HostChanges& changes) override {
    return host_twins.apply(changes);
  }

  std::unique_ptr<Connection> connection;
  int driver_version = implemented_version;
  std::vector<std::unique_ptr<Device>> devices;
  HandleMaker handles;
  MemoryRanges memory;
  DeviceAddresses device_addresses;
  HostTwins host_twins;
  Table<Context> contexts;
  Table<Stream> streams;
  Table<Event> events;
  Table<Array> arrays;
  Table<Module> modules;
  Table<Library> libraries;
  Table<LinkState> links;
  Table<Function> functions;  // functions of modules and kernels of libraries
  Callbacks callbacks;
  KernelOutput output;

  void run(const protocol::CallbackRun& run) override { callbacks.arrive(run); }
  void print(protocol::Output&& printed) override { output.keep(std::move(printed)); }
  void lost() override { callbacks.connection_lost(); }

  Device* device(CUdevice ordinal) {
    if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= devices.size()) return nullptr;
    return devices[static_cast<std::size_t>(ordinal)].get();
  }
};

// cuInit. The first call connects; a failure is remembered and returned again.
CUresult initialise();

// CUDA_SUCCESS while the library can be used; NOT_INITIALIZED before cuInit and in a forked child,
// DEINITIALIZED at the end of the process, NOT_PERMITTED inside a function that a stream runs.
CUresult library_state();
// Only after library_state() was CUDA_SUCCESS.
Process& process();

// One line for the file that HEADRACE_LOG names; nothing without it.
void log_line(std::string_view text);

int reported_driver_version();

}  // namespace headrace::client
