// Initialisation, versions and device queries.
#include <cuda.h>

#include <cstring>

#include "remoting/softgpu/device/log.h"
#include "remoting/softgpu/device/settings.h"
#include "remoting/softgpu/driver/attributes.h"
#include "remoting/softgpu/driver/runtime.h"

namespace headrace::softgpu {
namespace {

template <typename Body>
CUresult with_device(CUdevice ordinal, Body&& body) noexcept {
  return with_runtime([&](Runtime& runtime) -> CUresult {
    Device* device = runtime.device(ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    return body(*device);
  });
}

void copy_text(char* out, int size, const std::string& text) {
  std::size_t bytes = std::min(text.size(), static_cast<std::size_t>(size) - 1);
  std::memcpy(out, text.data(), bytes);
  out[bytes] = '\0';
}

}  // namespace

CUresult cuInit(unsigned int flags) { return Runtime::initialize(flags); }

CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = kDriverVersion;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  return with_runtime([&](Runtime& runtime) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<int>(runtime.devices().size());
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGet(CUdevice* out, int ordinal) {
  return with_device(ordinal, [&](Device& device) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = device.ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice ordinal) {
  return with_device(ordinal, [&](Device& device) {
    if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    copy_text(name, length, device.identity.name);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice ordinal) {
  return with_device(ordinal, [&](Device& device) {
    if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(uuid->bytes, device.identity.uuid.data(), 16);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice ordinal) {
  return softgpu::cuDeviceGetUuid_v2(uuid, ordinal);
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice ordinal) {
  return with_device(ordinal, [&](Device& device) {
    if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *bytes = device.identity.memory_bytes / kChunkBytes * kChunkBytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice ordinal) {
  return with_device(ordinal, [&](Device& device) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return device_attribute(device, attribute, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice ordinal) {
  return with_device(ordinal, [&](Device& device) {
    if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *major = device.limits().major;
    *minor = device.limits().minor;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetProperties(CUdevprop* out, CUdevice ordinal) {
  return with_device(ordinal, [&](Device& device) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = CUdevprop{};
    out->maxThreadsPerBlock = kThreadsPerBlock;
    for (int i = 0; i < 3; ++i) {
      out->maxThreadsDim[i] = static_cast<int>(kMaxBlock[i]);
      out->maxGridSize[i] = static_cast<int>(kMaxGrid[i]);
    }
    out->sharedMemPerBlock = kSharedPerBlock;
    out->totalConstantMemory = 64 << 10;
    out->SIMDWidth = kWarp;
    out->memPitch = 2147483647;
    out->regsPerBlock = kRegistersPerSm;
    out->clockRate = device.limits().clock_khz;
    out->textureAlign = 512;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice ordinal) {
  return with_device(ordinal, [&](Device& device) {
    if (text == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    copy_text(text, length, device.identity.pci_text());
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetByPCIBusId(CUdevice* out, const char* text) {
  return with_runtime([&](Runtime& runtime) {
    if (out == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
    int index = find_by_pci(text);
    for (const std::unique_ptr<Device>& device : runtime.devices()) {
      if (device->identity.index != index) continue;
      *out = device->ordinal;
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
  });
}

CUresult cuDeviceGetExecAffinitySupport(int* value, CUexecAffinityType, CUdevice ordinal) {
  return with_device(ordinal, [&](Device&) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *value = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceCanAccessPeer(int* value, CUdevice ordinal, CUdevice peer) {
  return with_device(ordinal, [&](Device& device) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (device.primary->runtime().device(peer) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    *value = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice source,
                                 CUdevice destination) {
  return with_device(source, [&](Device& device) {
    if (value == nullptr || attribute < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
        attribute > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (device.primary->runtime().device(destination) == nullptr || source == destination) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    *value = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  return with_context([&](Runtime& runtime, ContextPtr&) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (runtime.contexts.find(peer) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  });
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  return with_context([&](Runtime& runtime, ContextPtr&) {
    if (runtime.contexts.find(peer) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  });
}

CUresult cuProfilerStart() { return CUDA_SUCCESS; }
CUresult cuProfilerStop() { return CUDA_SUCCESS; }

}  // namespace headrace::softgpu
