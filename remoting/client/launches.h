// Launches: what the driver would reject is rejected at the call; the parameter block is laid out
// here and then only copied.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "client/state.h"
#include "driverabi/graphs.h"
#include "gen/calls.h"

namespace headrace::client {

inline constexpr std::size_t max_param_bytes = 32'768;

struct LaunchShape {
  unsigned grid[3] = {};
  unsigned block[3] = {};
  unsigned shared_bytes = 0;
};

// Grid, block and shared memory against the device's and the function's limits.
CUresult check_shape(const LaunchShape& shape, const Function& function, const Device& device);

// The parameter block from `params` (one pointer a parameter) or `extra` (a ready block). `block`
// points into `storage` or into the caller's memory.
CUresult lay_out(const Function& function, void** params, void** extra,
                 std::vector<std::uint8_t>& storage, std::span<const std::uint8_t>& block);

// Attributes of a launch as they travel; those that mean nothing are left out.
CUresult launch_attributes(const CUlaunchConfig& config, std::vector<calls::LaunchAttribute>& out);

// The launch that a kernel node describes, checked as at a launch.
CUresult read_kernel_node(const CUDA_KERNEL_NODE_PARAMS_v2& params, driverabi::KernelNode* node);

}  // namespace headrace::client
