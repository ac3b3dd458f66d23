// What a kernel needs and what a device has: attributes, launch rules and occupancy, which all rest
// on the same figures.
#pragma once

#include <cuda.h>

#include "remoting/driverabi/graphs.h"
#include "remoting/softgpu/driver/module.h"
#include "remoting/softgpu/driver/runtime.h"

namespace headrace::softgpu {

// Dynamic shared memory a launch may ask for: what was set, else what is left of 48 KiB.
int max_dynamic_shared(const sg_kernel_desc& kernel, const KernelSettings& settings);
int max_threads(const sg_kernel_desc& kernel);
int registers(const sg_kernel_desc& kernel);

// NOT_SUPPORTED-free: INVALID_VALUE for attributes that do not exist or cannot be set.
CUresult get_attribute(const Device& device, const Program& program, const sg_kernel_desc& kernel,
                       const KernelSettings& settings, CUfunction_attribute which, int* value);
CUresult set_attribute(const Device& device, const sg_kernel_desc& kernel, KernelSettings& settings,
                       CUfunction_attribute which, int value);

// Blocks of one multiprocessor that can be resident together; 0 when not even one fits.
int active_blocks(const Device& device, const sg_kernel_desc& kernel,
                  const KernelSettings& settings, int block, std::size_t dynamic_shared);

// The launch that a kernel node describes, checked as at a launch.
CUresult read_kernel_node(const CUDA_KERNEL_NODE_PARAMS_v2& params, driverabi::KernelNode* node);

}  // namespace headrace::softgpu
