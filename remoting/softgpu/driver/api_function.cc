// Functions and kernels: attributes, parameters, names; occupancy.
#include <cuda.h>

#include <algorithm>

#include "remoting/softgpu/driver/launch.h"

namespace headrace::softgpu {
namespace {

// With a compiled function (a CUkernel will do) and the device of its context.
template <typename Body>
CUresult with_function(CUfunction handle, Body&& body) noexcept {
  return with_runtime([&](Runtime& runtime) -> CUresult {
    FunctionPtr function;
    if (CUresult result = find_function(runtime, handle, &function)) return result;
    ContextPtr context = function->context();
    if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (CUresult result = context->sticky()) return result;
    return body(*function, *function->code().compiled(), context->device());
  });
}

template <typename Body>
CUresult with_kernel(CUkernel handle, Body&& body) noexcept {
  return with_runtime([&](Runtime& runtime) -> CUresult {
    std::shared_ptr<Kernel> kernel = runtime.kernels.find(handle);
    std::shared_ptr<Library> library = kernel != nullptr ? kernel->library() : nullptr;
    if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return body(runtime, *kernel, *library);
  });
}

// A kernel and one device; its attributes are per device.
template <typename Body>
CUresult with_kernel_on(CUkernel handle, CUdevice ordinal, Body&& body) noexcept {
  return with_kernel(handle, [&](Runtime& runtime, Kernel& kernel, Library& library) -> CUresult {
    Device* device = runtime.device(ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (CUresult result = kernel.code().compile(runtime, nullptr)) return result;
    return body(*device, *library.program(), *kernel.code().compiled(), *kernel.settings(ordinal));
  });
}

CUresult param_info(const KernelInfo& info, std::size_t index, std::size_t* offset,
                    std::size_t* size) {
  if (offset == nullptr || index >= info.params.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = info.params[index].offset;
  if (size != nullptr) *size = info.params[index].size;
  return CUDA_SUCCESS;
}

bool valid_cache_config(CUfunc_cache config) {
  return config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL;
}

}  // namespace

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction handle) {
  return with_function(
      handle, [&](Function& function, const sg_kernel_desc& kernel, Device& device) {
        return get_attribute(device, function.program(), kernel, function.settings(), which, value);
      });
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute which, int value) {
  return with_function(handle,
                       [&](Function& function, const sg_kernel_desc& kernel, Device& device) {
                         return set_attribute(device, kernel, function.settings(), which, value);
                       });
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute which, CUkernel handle,
                              CUdevice ordinal) {
  return with_kernel_on(handle, ordinal,
                        [&](Device& device, const Program& program, const sg_kernel_desc& kernel,
                            KernelSettings& settings) {
                          return get_attribute(device, program, kernel, settings, which, value);
                        });
}

CUresult cuKernelSetAttribute(CUfunction_attribute which, int value, CUkernel handle,
                              CUdevice ordinal) {
  return with_kernel_on(
      handle, ordinal,
      [&](Device& device, const Program&, const sg_kernel_desc& kernel, KernelSettings& settings) {
        return set_attribute(device, kernel, settings, which, value);
      });
}

// Preferences between cache and shared memory change nothing here.
CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
  return with_function(handle, [&](Function&, const sg_kernel_desc&, Device&) {
    return valid_cache_config(config) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}
CUresult cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice) {
  return with_kernel(handle, [&](Runtime&, Kernel&, Library&) {
    return valid_cache_config(config) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}
CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig) {
  return with_function(handle,
                       [](Function&, const sg_kernel_desc&, Device&) { return CUDA_SUCCESS; });
}

CUresult cuFuncGetModule(CUmodule* out, CUfunction handle) {
  return with_function(handle, [&](Function& function, const sg_kernel_desc&, Device&) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = to_handle<CUmodule>(function.module_handle());
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetName(const char** name, CUfunction handle) {
  return with_function(handle, [&](Function& function, const sg_kernel_desc&, Device&) {
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *name = function.code().name().c_str();
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* size) {
  return with_function(handle, [&](Function& function, const sg_kernel_desc&, Device&) {
    return param_info(function.code().info(), index, offset, size);
  });
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) {
  return with_runtime([&](Runtime& runtime) {
    FunctionPtr function = runtime.functions.find(handle);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *state = function->code().compiled() != nullptr ? CU_FUNCTION_LOADING_STATE_LOADED
                                                    : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncLoad(CUfunction handle) {
  return with_function(handle,
                       [](Function&, const sg_kernel_desc&, Device&) { return CUDA_SUCCESS; });
}

CUresult cuKernelGetFunction(CUfunction* out, CUkernel handle) {
  return with_runtime([&](Runtime& runtime) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (kind_of(handle) != HandleKind::kernel) return CUDA_ERROR_INVALID_HANDLE;
    FunctionPtr function;
    if (CUresult result = find_function(runtime, reinterpret_cast<CUfunction>(handle), &function)) {
      return result;
    }
    *out = to_handle<CUfunction>(function->handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuKernelGetLibrary(CUlibrary* out, CUkernel handle) {
  return with_kernel(handle, [&](Runtime&, Kernel& kernel, Library&) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = to_handle<CUlibrary>(kernel.library_handle());
    return CUDA_SUCCESS;
  });
}

CUresult cuKernelGetName(const char** name, CUkernel handle) {
  return with_kernel(handle, [&](Runtime&, Kernel& kernel, Library&) {
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *name = kernel.code().name().c_str();
    return CUDA_SUCCESS;
  });
}

CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset, size_t* size) {
  return with_kernel(handle, [&](Runtime&, Kernel& kernel, Library&) {
    return param_info(kernel.code().info(), index, offset, size);
  });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle,
                                                              int block, size_t dynamic_shared,
                                                              unsigned int flags) {
  return with_function(
      handle, [&](Function& function, const sg_kernel_desc& kernel, Device& device) {
        if (blocks == nullptr || block <= 0 || block > kThreadsPerBlock ||
            flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        *blocks = active_blocks(device, kernel, function.settings(), block, dynamic_shared);
        return CUDA_SUCCESS;
      });
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int block,
                                                     size_t dynamic_shared) {
  return softgpu::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, block,
                                                                       dynamic_shared, 0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction handle,
                                                   CUoccupancyB2DSize shared_of,
                                                   size_t dynamic_shared, int limit,
                                                   unsigned int flags) {
  return with_function(
      handle, [&](Function& function, const sg_kernel_desc& kernel, Device& device) {
        if (grid == nullptr || block == nullptr || limit < 0 ||
            flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        int most = max_threads(kernel);
        if (limit > 0) most = std::min(most, limit);
        int best_threads = 0;
        *grid = *block = 0;
        // From large to small: of two equally good sizes the larger one is taken.
        for (int size = (most + kWarp - 1) / kWarp * kWarp; size > 0; size -= kWarp) {
          int threads = std::min(size, most);
          std::size_t shared = shared_of != nullptr ? shared_of(threads) : dynamic_shared;
          int blocks = active_blocks(device, kernel, function.settings(), threads, shared);
          if (blocks * threads <= best_threads) continue;
          best_threads = blocks * threads;
          *block = threads;
          *grid = blocks * kMultiprocessors;
        }
        return CUDA_SUCCESS;
      });
}
CUresult cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction handle,
                                          CUoccupancyB2DSize shared_of, size_t dynamic_shared,
                                          int limit) {
  return softgpu::cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, handle, shared_of,
                                                            dynamic_shared, limit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks,
                                                 int block) {
  return with_function(handle, [&](Function& function, const sg_kernel_desc& kernel,
                                   Device& device) {
    if (bytes == nullptr || blocks <= 0 || block <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (active_blocks(device, kernel, function.settings(), block, 0) < blocks) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const Limits& limits = device.limits();
    int reserved = limits.major >= 8 ? kSharedReserved : 0;
    int each = limits.shared_per_sm / blocks / 256 * 256 - reserved;
    each = std::min(each, limits.shared_per_block_max);
    *bytes = static_cast<std::size_t>(std::max(0, each - static_cast<int>(kernel.static_shared)));
    return CUDA_SUCCESS;
  });
}

}  // namespace headrace::softgpu
