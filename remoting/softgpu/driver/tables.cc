// Answers of this library to the undocumented export tables (remoting/driverabi).

#include <cuda.h>

#include <cstring>
#include <mutex>

#include "remoting/driverabi/export_tables.h"
#include "remoting/driverabi/refusals.h"
#include "remoting/softgpu/device/log.h"
#include "remoting/softgpu/driver/jit_options.h"
#include "remoting/softgpu/driver/runtime.h"

namespace headrace::softgpu {

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image);

namespace {

int hook_driver_version() { return kDriverVersion; }

int hook_device_count() {
  Runtime* runtime = nullptr;
  return Runtime::get(&runtime) == CUDA_SUCCESS ? static_cast<int>(runtime->devices().size()) : 0;
}

bool hook_device_identity(int ordinal, driverabi::DeviceIdentity* out) {
  Runtime* runtime = nullptr;
  if (Runtime::get(&runtime) != CUDA_SUCCESS) return false;
  Device* device = runtime->device(ordinal);
  if (device == nullptr) return false;
  std::memcpy(out->uuid.data(), device->identity.uuid.data(), 16);
  out->pci_domain = device->identity.pci_domain;
  out->pci_bus = device->identity.pci_bus;
  out->pci_device = device->identity.pci_device;
  return true;
}

int hook_primary_context(void** context, int ordinal) {
  Runtime* runtime = nullptr;
  if (CUresult result = Runtime::get(&runtime)) return result;
  Device* device = runtime->device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *context = to_handle<void*>(device->primary->handle);
  return CUDA_SUCCESS;
}

void* hook_current_context() {
  if (!Runtime::usable()) return nullptr;
  ThreadState& thread = Runtime::thread();
  return thread.contexts.empty() ? nullptr : to_handle<void*>(thread.contexts.back()->handle);
}

int hook_load_module(void** module, const void* wrapper) {
  return softgpu::cuModuleLoadFatBinary(reinterpret_cast<CUmodule*>(module), wrapper);
}

void hook_log(const char* line) { log(line); }

constexpr driverabi::DriverHooks kHooks = {
    &Runtime::usable,     hook_driver_version,  hook_device_count, hook_device_identity,
    hook_primary_context, hook_current_context, hook_load_module,  hook_log,
};

constexpr driverabi::RefusalsTable kRefusals = {sizeof(driverabi::RefusalsTable), last_refusal};

}  // namespace

// Runtimes ask for tables before cuInit.
CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (std::memcmp(id->bytes, driverabi::kRefusalsId, sizeof driverabi::kRefusalsId) == 0) {
    *table = &kRefusals;
    return CUDA_SUCCESS;
  }
  static std::once_flag once;
  try {
    std::call_once(once, [] { driverabi::set_driver_hooks(&kHooks); });
    return static_cast<CUresult>(driverabi::get_export_table(table, id->bytes));
  } catch (...) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

}  // namespace headrace::softgpu
