// What every entry point of the software GPU's NVML goes through.
#pragma once

#include <atomic>
#include <new>

#include "remoting/softgpu/device/condition.h"
#include "remoting/softgpu/device/identity.h"
#include "remoting/softgpu/nvml/types.h"

#define NVML_EXPORT extern "C" [[gnu::visibility("default")]]

namespace headrace::softgpu::nvml {

constexpr int kMaxDevices = 64;

extern std::atomic<int> initialized;
// Handles are addresses of these bytes: one per device, valid as long as the library is loaded.
extern char handle_bytes[kMaxDevices];

// nullptr: no handle of ours.
const DeviceIdentity* find(const void* handle);

template <typename Body>
Return with_library(Body&& body) noexcept {
  if (initialized.load() <= 0) return kUninitialized;
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return kMemory;
  } catch (...) {
    return kUnknown;
  }
}

// For what is known of a device also when it is not there any more.
template <typename Body>
Return with_identity(const void* handle, Body&& body) noexcept {
  return with_library([&] {
    const DeviceIdentity* device = find(handle);
    return device != nullptr ? body(*device) : kInvalidArgument;
  });
}

template <typename Body>
Return with_device(const void* handle, Body&& body) noexcept {
  return with_identity(handle, [&](const DeviceIdentity& device) {
    return Condition::of(device.index).lost() ? kGpuIsLost : body(device);
  });
}

}  // namespace headrace::softgpu::nvml
