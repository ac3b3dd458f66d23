#include <algorithm>

#include "remoting/softgpu/driver/launch.h"

namespace headrace::softgpu {
namespace {

constexpr int kRegisterUnit = 256;  // registers are given out per warp in such units
constexpr int kSharedUnit = 128;

int round_up(int value, int unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

int max_dynamic_shared(const sg_kernel_desc& kernel, const KernelSettings& settings) {
  int set = settings.max_dynamic_shared.load(std::memory_order_relaxed);
  int left = kSharedPerBlock - static_cast<int>(kernel.static_shared);
  return set > 0 ? set : std::max(left, 0);
}

int max_threads(const sg_kernel_desc& kernel) {
  int limit = static_cast<int>(kernel.max_threads);
  return limit > 0 && limit < kThreadsPerBlock ? limit : kThreadsPerBlock;
}

// An estimate of the translator; a kernel that may be launched with 1024 threads has to show a
// number with which it fits.
int registers(const sg_kernel_desc& kernel) {
  int most = std::min(255, kRegistersPerSm / max_threads(kernel) / 8 * 8);
  return std::clamp(static_cast<int>(kernel.registers), 16, most);
}

CUresult get_attribute(const Device& device, const Program& program, const sg_kernel_desc& kernel,
                       const KernelSettings& settings, CUfunction_attribute which, int* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = max_threads(kernel);
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(kernel.static_shared);
      break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = static_cast<int>(kernel.local_bytes);
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = registers(kernel);
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      *value = program.ptx_version();
      break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = program.binary_version() != 0 ? program.binary_version()
                                             : device.limits().major * 10 + device.limits().minor;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = max_dynamic_shared(kernel, settings);
      break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = settings.carveout.load(std::memory_order_relaxed);
      break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      *value = program.constant_bytes();
      break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      *value = 0;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult set_attribute(const Device& device, const sg_kernel_desc& kernel, KernelSettings& settings,
                       CUfunction_attribute which, int value) {
  switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      int most = device.limits().shared_per_block_max - static_cast<int>(kernel.static_shared);
      if (value < 0 || value > most) return CUDA_ERROR_INVALID_VALUE;
      settings.max_dynamic_shared.store(value, std::memory_order_relaxed);
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      settings.carveout.store(value, std::memory_order_relaxed);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return CUDA_SUCCESS;  // preferences for launches with clusters, which are not there
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

int active_blocks(const Device& device, const sg_kernel_desc& kernel,
                  const KernelSettings& settings, int block, std::size_t dynamic_shared) {
  const Limits& limits = device.limits();
  if (block > max_threads(kernel)) return 0;
  if (dynamic_shared > static_cast<std::size_t>(max_dynamic_shared(kernel, settings))) return 0;
  const int warps = (block + kWarp - 1) / kWarp;
  int out = std::min(limits.blocks_per_sm, limits.threads_per_sm / kWarp / warps);
  const int per_warp = round_up(registers(kernel) * kWarp, kRegisterUnit);
  out = std::min(out, kRegistersPerSm / per_warp / warps);
  const int reserved = limits.major >= 8 ? kSharedReserved : 0;
  const int shared =
      round_up(static_cast<int>(kernel.static_shared + dynamic_shared) + reserved, kSharedUnit);
  if (shared > 0) out = std::min(out, limits.shared_per_sm / shared);
  // A cooperative grid is sized from this answer, and all its blocks must be resident here too.
  const int resident = static_cast<int>(
      max_cooperative_blocks(static_cast<std::uint32_t>(warps * kWarp)) / kMultiprocessors);
  if ((kernel.flags & SG_KERNEL_COOPERATIVE) != 0) out = std::min(out, resident);
  return std::max(out, 0);
}

}  // namespace headrace::softgpu
