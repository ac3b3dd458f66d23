// Occupancy. Block sizes are tried here, because the caller's own function says how much shared
// memory each needs; the questions themselves are answered by the server once.
#include <algorithm>
#include <memory>

#include "client/functions.h"
#include "client/launches.h"
#include "client/process.h"
#include "client/remote.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

template <typename Call>
CUresult shape_question(CUfunction handle, const CUlaunchConfig* config, Call& call) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = to_wire(HandleKind::function, handle, call.func); bad != CUDA_SUCCESS) {
    return bad;
  }
  call.gridDimX = config->gridDimX;
  call.gridDimY = config->gridDimY;
  call.gridDimZ = config->gridDimZ;
  call.blockDimX = config->blockDimX;
  call.blockDimY = config->blockDimY;
  call.blockDimZ = config->blockDimZ;
  call.sharedMemBytes = config->sharedMemBytes;
  return launch_attributes(*config, call.attributes);
}

}  // namespace

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* min_grid, int* best_block,
                                                   CUfunction handle, CUoccupancyB2DSize shared_for,
                                                   std::size_t shared_bytes, int limit,
                                                   unsigned int flags) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  const std::shared_ptr<Function> function = find_function(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (min_grid == nullptr || best_block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device& device = *context->device;
  int most = 0;
  const CUresult asked =
      families::cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, handle);
  if (asked != CUDA_SUCCESS) return asked;
  if (limit > 0) most = std::min(most, limit);
  const int step = std::max(1, device.attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE));
  int best_threads = 0;
  int best_blocks = 0;
  // From the largest down, so that of equally good sizes the largest is taken.
  for (int block = (most + step - 1) / step * step; block > 0; block -= step) {
    const int size = std::min(block, most);
    const std::size_t shared = shared_for != nullptr ? shared_for(size) : shared_bytes;
    int blocks = 0;
    const CUresult result = families::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        &blocks, handle, size, shared, flags);
    if (result != CUDA_SUCCESS) return result;
    if (blocks * size > best_threads) {
      best_threads = blocks * size;
      best_blocks = blocks;
      *best_block = size;
    }
  }
  if (best_threads == 0) return CUDA_ERROR_INVALID_VALUE;
  *min_grid = best_blocks * device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int* min_grid, int* best_block, CUfunction handle,
                                          CUoccupancyB2DSize shared_for, std::size_t shared_bytes,
                                          int limit) {
  return families::cuOccupancyMaxPotentialBlockSizeWithFlags(
      min_grid, best_block, handle, shared_for, shared_bytes, limit, CU_OCCUPANCY_DEFAULT);
}

CUresult cuOccupancyMaxPotentialClusterSize(int* size, CUfunction handle,
                                            const CUlaunchConfig* config) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (size == nullptr) return CUDA_ERROR_INVALID_VALUE;
  calls::CuOccupancyMaxPotentialClusterSize call;
  if (const CUresult bad = shape_question(handle, config, call); bad != CUDA_SUCCESS) return bad;
  calls::CuOccupancyMaxPotentialClusterSize::Reply reply;
  const CUresult result = trip_cached(call, reply);
  if (result == CUDA_SUCCESS) *size = reply.clusterSize;
  return result;
}

CUresult cuOccupancyMaxActiveClusters(int* count, CUfunction handle, const CUlaunchConfig* config) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  calls::CuOccupancyMaxActiveClusters call;
  if (const CUresult bad = shape_question(handle, config, call); bad != CUDA_SUCCESS) return bad;
  calls::CuOccupancyMaxActiveClusters::Reply reply;
  const CUresult result = trip_cached(call, reply);
  if (result == CUDA_SUCCESS) *count = reply.numClusters;
  return result;
}

}  // namespace headrace::client::families
