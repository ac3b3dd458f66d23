// Device attributes: one consistent set, which promises nothing that is not there (no managed
// memory, no textures, no virtual memory management, no memory operations on streams).
#pragma once

#include <cuda.h>

#include "remoting/softgpu/driver/runtime.h"

namespace headrace::softgpu {

// False for an attribute that does not exist.
bool device_attribute(const Device& device, CUdevice_attribute attribute, int* value);

}  // namespace headrace::softgpu
