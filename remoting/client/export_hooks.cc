#include "client/export_hooks.h"

#include <cuda.h>

#include "client/process.h"
#include "client/thread_state.h"
#include "driverabi/export_tables.h"
#include "gen/client_families.h"

namespace headrace::client {
namespace {

bool device_identity(int ordinal, driverabi::DeviceIdentity* out) {
  Device* const device = process().device(ordinal);
  if (device == nullptr) return false;
  out->uuid = device->uuid;
  out->pci_domain = device->pci_domain;
  out->pci_bus = device->pci_bus;
  out->pci_device = device->pci_device;
  return true;
}

int primary_context(void** context, int ordinal) {
  if (const CUresult state = library_state(); state != CUDA_SUCCESS) return state;
  Device* const device = process().device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *context = device->primary->handle();
  return CUDA_SUCCESS;
}

void* current_context() {
  if (library_state() != CUDA_SUCCESS) return nullptr;
  const ThreadState& thread = ThreadState::of_this_thread();
  return thread.contexts.empty() ? nullptr : thread.contexts.back()->handle();
}

int load_module(void** module, const void* wrapper) {
  try {
    return families::cuModuleLoadData(reinterpret_cast<CUmodule*>(module), wrapper);
  } catch (...) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

constexpr driverabi::DriverHooks hooks = {
    .usable = [] { return library_state() == CUDA_SUCCESS; },
    .driver_version = reported_driver_version,
    .device_count =
        [] {
          return library_state() == CUDA_SUCCESS ? static_cast<int>(process().devices.size()) : 0;
        },
    .device_identity = device_identity,
    .primary_context = primary_context,
    .current_context = current_context,
    .load_module = load_module,
    .log = [](const char* line) { log_line(line); },
};

}  // namespace

void set_export_hooks() { driverabi::set_driver_hooks(&hooks); }

}  // namespace headrace::client
