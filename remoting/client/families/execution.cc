// Launches: checked against what is known here, then sent without waiting.
#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "client/captures.h"
#include "client/copies.h"
#include "client/functions.h"
#include "client/launches.h"
#include "client/per_thread.h"
#include "client/process.h"
#include "client/remote.h"
#include "client/streams.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

// What all forms of a launch have in common once their arguments are checked.
struct Prepared {
  Context* context = nullptr;
  std::uint64_t function = 0;
  std::uint64_t stream = 0;
  std::span<const std::uint8_t> block;
  std::shared_ptr<Function> code;
  std::span<const CUlaunchAttribute> attributes;
};

driverabi::KernelNode node_of(const Prepared& prepared, const LaunchShape& shape) {
  driverabi::KernelNode node;
  node.function = reinterpret_cast<CUfunction>(prepared.function);
  node.context = prepared.context->handle();
  std::copy(shape.grid, shape.grid + 3, node.grid);
  std::copy(shape.block, shape.block + 3, node.block);
  node.shared_bytes = shape.shared_bytes;
  node.attributes.assign(prepared.attributes.begin(), prepared.attributes.end());
  node.params.assign(prepared.block.begin(), prepared.block.end());
  for (const driverabi::ParamSlot& slot : prepared.code->params) {
    if (slot.offset + slot.size > node.params.size()) break;
    node.addresses.push_back(node.params.data() + slot.offset);
  }
  return node;
}

std::vector<std::uint8_t>& block_storage() {
  return per_thread<std::vector<std::uint8_t>, struct BlockStorage>();
}

// CUDA_LAUNCH_BLOCKING makes each launch wait, so that an error shows where it was made.
bool blocking_launches() {
  static const bool blocking = [] {
    const char* const wanted = getenv("CUDA_LAUNCH_BLOCKING");
    return wanted != nullptr && *wanted != '\0' && *wanted != '0';
  }();
  return blocking;
}

CUresult prepare(CUfunction handle, const LaunchShape& shape, CUstream stream, void** params,
                 void** extra, Prepared& out) {
  if (const CUresult state = enter_context(out.context); state != CUDA_SUCCESS) return state;
  const std::shared_ptr<Function> function = find_function(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (function->context != nullptr && function->context != out.context) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (const CUresult bad = check_shape(shape, *function, *out.context->device);
      bad != CUDA_SUCCESS) {
    return bad;
  }
  if (const CUresult bad = resolve_stream(stream, out.stream); bad != CUDA_SUCCESS) return bad;
  if (context_of_stream(out.stream, out.context) != out.context) return CUDA_ERROR_INVALID_HANDLE;
  out.function = function->id;
  out.code = function;
  return lay_out(*function, params, extra, block_storage(), out.block);
}

template <typename Call>
CUresult launch(const Prepared& prepared, const LaunchShape& shape, Call& call) {
  if (const Graphs::Verdict captured = capture_work(*prepared.context, prepared.stream,
                                                    [&] { return node_of(prepared, shape); })) {
    return *captured;
  }
  if (const CUresult bad = process().host_twins.before_launch(prepared.block);
      bad != CUDA_SUCCESS) {
    return bad;
  }
  call.f = prepared.function;
  call.gridDimX = shape.grid[0];
  call.gridDimY = shape.grid[1];
  call.gridDimZ = shape.grid[2];
  call.blockDimX = shape.block[0];
  call.blockDimY = shape.block[1];
  call.blockDimZ = shape.block[2];
  call.sharedMemBytes = shape.shared_bytes;
  call.hStream = prepared.stream;
  call.block = prepared.block;
  const CUresult result = send_in(prepared.context->id, call);
  if (result != CUDA_SUCCESS || !blocking_launches()) return result;
  return synchronise(*prepared.context, prepared.stream);
}

}  // namespace

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void** params, void** extra) {
  const LaunchShape shape{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
  Prepared prepared;
  if (const CUresult bad = prepare(function, shape, stream, params, extra, prepared);
      bad != CUDA_SUCCESS) {
    return bad;
  }
  calls::CuLaunchKernel call;
  return launch(prepared, shape, call);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** params,
                          void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const LaunchShape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                          {config->blockDimX, config->blockDimY, config->blockDimZ},
                          config->sharedMemBytes};
  Prepared prepared;
  if (const CUresult bad = prepare(function, shape, config->hStream, params, extra, prepared);
      bad != CUDA_SUCCESS) {
    return bad;
  }
  if (config->numAttrs == 0) {
    calls::CuLaunchKernel plain;
    return launch(prepared, shape, plain);
  }
  prepared.attributes = {config->attrs, config->numAttrs};
  calls::CuLaunchKernelEx call;
  if (const CUresult bad = launch_attributes(*config, call.attributes); bad != CUDA_SUCCESS) {
    return bad;
  }
  return launch(prepared, shape, call);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void** params) {
  const LaunchShape shape{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
  Prepared prepared;
  if (const CUresult bad = prepare(function, shape, stream, params, nullptr, prepared);
      bad != CUDA_SUCCESS) {
    return bad;
  }
  // All blocks must be on the device at once, or none ever gets past the grid's barrier.
  const CUdevice_attribute processors = CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
  int resident = 0;
  const CUresult asked = families::cuOccupancyMaxActiveBlocksPerMultiprocessor(
      &resident, function, static_cast<int>(block_x * block_y * block_z), shared_bytes);
  if (asked != CUDA_SUCCESS) return asked;
  const std::uint64_t most =
      static_cast<std::uint64_t>(resident) *
      static_cast<std::uint64_t>(prepared.context->device->attribute(processors));
  if (std::uint64_t{grid_x} * grid_y * grid_z > most) {
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  prepared.attributes = {&attribute, 1};
  calls::CuLaunchCooperativeKernel call;
  return launch(prepared, shape, call);
}

}  // namespace headrace::client::families

namespace headrace::client {

CUresult read_kernel_node(const CUDA_KERNEL_NODE_PARAMS_v2& params, driverabi::KernelNode* node) {
  const CUfunction function =
      params.func != nullptr ? params.func : reinterpret_cast<CUfunction>(params.kern);
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const LaunchShape shape{{params.gridDimX, params.gridDimY, params.gridDimZ},
                          {params.blockDimX, params.blockDimY, params.blockDimZ},
                          params.sharedMemBytes};
  families::Prepared prepared;
  if (const CUresult bad =
          families::prepare(function, shape, nullptr, params.kernelParams, params.extra, prepared);
      bad != CUDA_SUCCESS) {
    return bad;
  }
  *node = families::node_of(prepared, shape);
  return CUDA_SUCCESS;
}

}  // namespace headrace::client
