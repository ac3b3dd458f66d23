// Devices, as the server described them at attach. A slice looks like a GPU of its own.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "client/process.h"
#include "client/remote.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

// Devices can be asked about while the library is usable, also after the connection was lost.
CUresult find_device(CUdevice ordinal, Device*& device) {
  if (const CUresult state = library_state(); state != CUDA_SUCCESS) return state;
  device = process().device(ordinal);
  return device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

}  // namespace

CUresult cuDeviceGetCount(int* count) {
  if (const CUresult state = library_state(); state != CUDA_SUCCESS) return state;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(process().devices.size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  Device* found = nullptr;
  if (const CUresult state = find_device(ordinal, found); state != CUDA_SUCCESS) return state;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice ordinal) {
  Device* device = nullptr;
  if (const CUresult state = find_device(ordinal, device); state != CUDA_SUCCESS) return state;
  if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<std::size_t>(length), "%s", device->name.c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice ordinal) {
  Device* device = nullptr;
  if (const CUresult state = find_device(ordinal, device); state != CUDA_SUCCESS) return state;
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(uuid->bytes, device->uuid.data(), device->uuid.size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice ordinal) {
  Device* device = nullptr;
  if (const CUresult state = find_device(ordinal, device); state != CUDA_SUCCESS) return state;
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = device->total_memory;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice ordinal) {
  Device* device = nullptr;
  if (const CUresult state = find_device(ordinal, device); state != CUDA_SUCCESS) return state;
  if (value == nullptr || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // What an older driver does not know, its device cannot do.
  *value = device->attribute(attribute);
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice ordinal) {
  Device* device = nullptr;
  if (const CUresult state = find_device(ordinal, device); state != CUDA_SUCCESS) return state;
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *major = device->attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  *minor = device->attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop* out, CUdevice ordinal) {
  Device* device = nullptr;
  if (const CUresult state = find_device(ordinal, device); state != CUDA_SUCCESS) return state;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = CUdevprop{};
  out->maxThreadsPerBlock = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  for (int i = 0; i < 3; ++i) {
    out->maxThreadsDim[i] = device->attributes[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i];
    out->maxGridSize[i] = device->attributes[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i];
  }
  out->sharedMemPerBlock = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  out->totalConstantMemory = device->attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
  out->SIMDWidth = device->attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  out->memPitch = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  out->regsPerBlock = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  out->clockRate = device->attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  out->textureAlign = device->attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice ordinal) {
  Device* device = nullptr;
  if (const CUresult state = find_device(ordinal, device); state != CUDA_SUCCESS) return state;
  if (text == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(text, static_cast<std::size_t>(length), "%04x:%02x:%02x.0",
                static_cast<unsigned>(device->pci_domain), static_cast<unsigned>(device->pci_bus),
                static_cast<unsigned>(device->pci_device));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* out, const char* text) {
  if (const CUresult state = library_state(); state != CUDA_SUCCESS) return state;
  if (out == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // [domain:]bus:device[.function], as CUDA documents it.
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned device = 0;
  if (std::sscanf(text, "%x:%x:%x", &domain, &bus, &device) != 3) {
    domain = 0;
    if (std::sscanf(text, "%x:%x", &bus, &device) != 2) return CUDA_ERROR_INVALID_VALUE;
  }
  for (const std::unique_ptr<Device>& candidate : process().devices) {
    if (static_cast<unsigned>(candidate->pci_domain) == domain &&
        static_cast<unsigned>(candidate->pci_bus) == bus &&
        static_cast<unsigned>(candidate->pci_device) == device) {
      *out = candidate->ordinal;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetExecAffinitySupport(int* supported, CUexecAffinityType, CUdevice ordinal) {
  Device* device = nullptr;
  if (const CUresult state = find_device(ordinal, device); state != CUDA_SUCCESS) return state;
  if (supported == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *supported = 0;
  return CUDA_SUCCESS;
}

}  // namespace headrace::client::families
