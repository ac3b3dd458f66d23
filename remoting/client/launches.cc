#include "client/launches.h"

#include <cstring>

#include "client/process.h"

namespace headrace::client {

CUresult check_shape(const LaunchShape& shape, const Function& function, const Device& device) {
  std::uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    const unsigned max_grid =
        static_cast<unsigned>(device.attributes[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i]);
    const unsigned max_block =
        static_cast<unsigned>(device.attributes[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i]);
    if (shape.grid[i] == 0 || shape.grid[i] > max_grid || shape.block[i] == 0 ||
        shape.block[i] > max_block) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    threads *= shape.block[i];
  }
  if (threads >
      static_cast<std::uint64_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // More threads than this kernel can have, because of its registers or its launch bounds.
  const int max_threads = function.max_threads.load(std::memory_order_relaxed);
  if (max_threads > 0 && threads > static_cast<std::uint64_t>(max_threads)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int max_shared = function.max_dynamic_shared.load(std::memory_order_relaxed);
  if (max_shared >= 0 && shape.shared_bytes > static_cast<unsigned>(max_shared)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult lay_out(const Function& function, void** params, void** extra,
                 std::vector<std::uint8_t>& storage, std::span<const std::uint8_t>& block) {
  if (extra != nullptr) {
    if (params != nullptr) return CUDA_ERROR_INVALID_VALUE;
    const void* buffer = nullptr;
    std::size_t size = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
      if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
        buffer = extra[1];
      } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
        if (extra[1] == nullptr) return CUDA_ERROR_INVALID_VALUE;
        std::memcpy(&size, extra[1], sizeof size);
      } else {
        return CUDA_ERROR_INVALID_VALUE;
      }
    }
    if (size > max_param_bytes || (size != 0 && buffer == nullptr) || size < function.param_bytes) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    block = {static_cast<const std::uint8_t*>(buffer), size};
    return CUDA_SUCCESS;
  }
  if (function.params.empty()) {
    block = {};
    return CUDA_SUCCESS;
  }
  if (params == nullptr || function.param_bytes > max_param_bytes) return CUDA_ERROR_INVALID_VALUE;
  storage.assign(function.param_bytes, 0);  // gaps between parameters carry nothing of ours
  for (std::size_t i = 0; i < function.params.size(); ++i) {
    if (params[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(storage.data() + function.params[i].offset, params[i], function.params[i].size);
  }
  block = storage;
  return CUDA_SUCCESS;
}

CUresult launch_attributes(const CUlaunchConfig& config, std::vector<calls::LaunchAttribute>& out) {
  constexpr unsigned max_attributes = 32;
  if (config.numAttrs != 0 && config.attrs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (config.numAttrs > max_attributes) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_IGNORE) continue;
    // Host memory and graph nodes are not carried yet.
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW ||
        attribute.id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) {
      log_line("launch attribute " + std::to_string(attribute.id) + " is not carried");
      continue;
    }
    calls::LaunchAttribute wire;
    wire.id = attribute.id;
    static_assert(sizeof attribute.value <= sizeof wire.value);
    std::memcpy(wire.value.data(), &attribute.value, sizeof attribute.value);
    out.push_back(wire);
  }
  return CUDA_SUCCESS;
}

}  // namespace headrace::client
