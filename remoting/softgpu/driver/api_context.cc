// Contexts: primary and created ones, each thread's stack of current contexts, settings.
#include <cuda.h>

#include "remoting/driverabi/export_tables.h"
#include "remoting/softgpu/driver/capture.h"
#include "remoting/softgpu/driver/runtime.h"

namespace headrace::softgpu {
namespace {

template <typename Body>
CUresult with_device(CUdevice ordinal, Body&& body) noexcept {
  return with_runtime([&](Runtime& runtime) -> CUresult {
    Device* device = runtime.device(ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    return body(runtime, *device);
  });
}

CUcontext handle_of(const ContextPtr& context) { return to_handle<CUcontext>(context->handle); }

// What runtimes hung on the context goes first: its destructors may still make calls.
void end(Context& context) {
  driverabi::destroy_context_storage(to_handle<void*>(context.handle));
  context.reset();
}

// The same for a primary context, unless somebody retains it meanwhile.
void end_primary(Device& device) {
  driverabi::destroy_context_storage(to_handle<void*>(device.primary->handle));
  std::lock_guard<std::mutex> guard(device.primary_mutex);
  if (device.primary_references == 0) device.primary->reset();
}

bool valid_flags(unsigned flags) {
  unsigned scheduling = flags & CU_CTX_SCHED_MASK;
  return (flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) == 0 &&
         (scheduling == CU_CTX_SCHED_AUTO || scheduling == CU_CTX_SCHED_SPIN ||
          scheduling == CU_CTX_SCHED_YIELD || scheduling == CU_CTX_SCHED_BLOCKING_SYNC);
}

CUresult create(CUcontext* out, unsigned flags, CUdevice ordinal, unsigned api_version) {
  return with_device(ordinal, [&](Runtime& runtime, Device& device) {
    if (out == nullptr || !valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    if (device.condition().lost()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    ContextPtr context = std::make_shared<Context>(runtime, device, false);
    context->flags = flags;
    context->api_version = api_version;
    context->activate();
    runtime.contexts.add(context);
    Runtime::thread().contexts.push_back(context);
    *out = handle_of(context);
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice ordinal) {
  return with_device(ordinal, [&](Runtime&, Device& device) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (device.condition().lost()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    std::lock_guard<std::mutex> guard(device.primary_mutex);
    if (device.primary_references++ == 0) {
      device.primary->flags = device.primary_flags;
      device.primary->activate();
    }
    *out = handle_of(device.primary);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
  return with_device(ordinal, [&](Runtime&, Device& device) {
    std::unique_lock<std::mutex> guard(device.primary_mutex);
    if (device.primary_references == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--device.primary_references != 0) return CUDA_SUCCESS;
    guard.unlock();
    end_primary(device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
  return with_device(ordinal, [&](Runtime&, Device& device) {
    {
      std::lock_guard<std::mutex> guard(device.primary_mutex);
      device.primary_references = 0;
    }
    end_primary(device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags) {
  return with_device(ordinal, [&](Runtime&, Device& device) {
    if (!valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> guard(device.primary_mutex);
    device.primary_flags = flags;
    device.primary->flags = flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal) {
  return softgpu::cuDevicePrimaryCtxRelease_v2(ordinal);
}
CUresult cuDevicePrimaryCtxReset(CUdevice ordinal) {
  return softgpu::cuDevicePrimaryCtxReset_v2(ordinal);
}
CUresult cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned int flags) {
  return softgpu::cuDevicePrimaryCtxSetFlags_v2(ordinal, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int* flags, int* active) {
  return with_device(ordinal, [&](Runtime&, Device& device) {
    if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> guard(device.primary_mutex);
    *flags = device.primary_flags;
    *active = device.primary_references > 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxCreate_v2(CUcontext* out, unsigned int flags, CUdevice ordinal) {
  return create(out, flags, ordinal, 3020);
}
CUresult cuCtxCreate(CUcontext* out, unsigned int flags, CUdevice ordinal) {
  return create(out, flags, ordinal, 3010);
}
CUresult cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam* affinity, int count,
                        unsigned int flags, CUdevice ordinal) {
  if (affinity != nullptr && count > 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(out, flags, ordinal, 11040);
}
CUresult cuCtxCreate_v4(CUcontext* out, CUctxCreateParams* params, unsigned int flags,
                        CUdevice ordinal) {
  if (params != nullptr) {
    if (params->numExecAffinityParams > 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    if (params->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  }
  return create(out, flags, ordinal, 13000);
}

CUresult cuCtxDestroy_v2(CUcontext handle) {
  return with_runtime([&](Runtime& runtime) {
    ContextPtr context = runtime.contexts.find(handle);
    if (context == nullptr || context->primary()) return CUDA_ERROR_INVALID_CONTEXT;
    if (runtime.contexts.remove(handle) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    std::vector<ContextPtr>& stack = Runtime::thread().contexts;
    if (!stack.empty() && stack.back() == context) stack.pop_back();
    end(*context);
    return CUDA_SUCCESS;
  });
}
CUresult cuCtxDestroy(CUcontext handle) { return softgpu::cuCtxDestroy_v2(handle); }

CUresult cuCtxGetCurrent(CUcontext* out) {
  return with_runtime([&](Runtime&) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::vector<ContextPtr>& stack = Runtime::thread().contexts;
    *out = stack.empty() ? nullptr : handle_of(stack.back());
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  return with_runtime([&](Runtime& runtime) {
    std::vector<ContextPtr>& stack = Runtime::thread().contexts;
    if (handle == nullptr) {
      if (!stack.empty()) stack.pop_back();
      return CUDA_SUCCESS;
    }
    if (!stack.empty() && handle_of(stack.back()) == handle) return CUDA_SUCCESS;
    ContextPtr context = runtime.contexts.find(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (!stack.empty()) stack.pop_back();
    stack.push_back(std::move(context));
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
  return with_runtime([&](Runtime& runtime) {
    ContextPtr context = runtime.contexts.find(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    Runtime::thread().contexts.push_back(std::move(context));
    return CUDA_SUCCESS;
  });
}
CUresult cuCtxPushCurrent(CUcontext handle) { return softgpu::cuCtxPushCurrent_v2(handle); }

CUresult cuCtxPopCurrent_v2(CUcontext* out) {
  return with_runtime([&](Runtime&) {
    std::vector<ContextPtr>& stack = Runtime::thread().contexts;
    if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (out != nullptr) *out = handle_of(stack.back());
    stack.pop_back();
    return CUDA_SUCCESS;
  });
}
CUresult cuCtxPopCurrent(CUcontext* out) { return softgpu::cuCtxPopCurrent_v2(out); }

CUresult cuCtxGetDevice(CUdevice* out) {
  return with_runtime([&](Runtime& runtime) {
    ContextPtr context;
    if (CUresult result = runtime.current(&context)) return result;
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = context->device().ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice_v2(CUdevice* out, CUcontext handle) {
  if (handle == nullptr) return softgpu::cuCtxGetDevice(out);
  return with_runtime([&](Runtime& runtime) {
    ContextPtr context = runtime.contexts.find(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = context->device().ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  return with_context([&](Runtime&, ContextPtr& context) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> guard(context->settings_mutex);
    *flags = context->flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetFlags(unsigned int flags) {
  return with_context([&](Runtime&, ContextPtr& context) {
    if (!valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> guard(context->settings_mutex);
    context->flags = flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  return with_runtime([&](Runtime& runtime) {
    ContextPtr context;
    if (handle == nullptr) {
      if (CUresult result = runtime.current(&context)) return result;
    } else {
      context = runtime.contexts.find(handle);
    }
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *id = context->id();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
  return with_runtime([&](Runtime& runtime) {
    ContextPtr context;
    if (handle == nullptr) {
      if (CUresult result = runtime.current(&context)) return result;
    } else {
      context = runtime.contexts.find(handle);
    }
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = context->api_version;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSynchronize() {
  return with_context([&](Runtime&, ContextPtr& context) {
    if (graphs().watching()) {
      if (Graphs::Verdict upset = graphs().context_waits(context->handle)) return *upset;
    }
    context->wait_all();
    return context->sticky();
  });
}

CUresult cuCtxSynchronize_v2(CUcontext handle) {
  if (handle == nullptr) return softgpu::cuCtxSynchronize();
  return with_runtime([&](Runtime& runtime) {
    ContextPtr context = runtime.contexts.find(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (!context->active()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (graphs().watching()) {
      if (Graphs::Verdict upset = graphs().context_waits(context->handle)) return *upset;
    }
    context->wait_all();
    return context->sticky();
  });
}

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  return with_context([&](Runtime&, ContextPtr& context) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // Contexts that share the GPU with graphics (CIG) are not there; libraries ask all the same.
    if (limit == CU_LIMIT_CIG_ENABLED || limit == CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED) {
      *value = 0;
      return CUDA_SUCCESS;
    }
    if (limit == CU_LIMIT_SHMEM_SIZE) {
      *value = static_cast<std::size_t>(context->device().limits().shared_per_block_max);
      return CUDA_SUCCESS;
    }
    if (limit < 0 || limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    std::lock_guard<std::mutex> guard(context->settings_mutex);
    *value = context->limits[limit];
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  return with_context([&](Runtime&, ContextPtr& context) {
    if (limit < 0 || limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    return context->set_limit(limit, value);
  });
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  return with_context([&](Runtime&, ContextPtr& context) {
    if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> guard(context->settings_mutex);
    *config = context->cache_config;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  return with_context([&](Runtime&, ContextPtr& context) {
    if (config < 0 || config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> guard(context->settings_mutex);
    context->cache_config = config;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* config) {
  return with_context([&](Runtime&, ContextPtr& context) {
    if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> guard(context->settings_mutex);
    *config = context->shared_config;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  return with_context([&](Runtime&, ContextPtr&) {
    // Accepted and without effect, as on every device since Kepler.
    if (config < 0 || config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return with_context([&](Runtime&, ContextPtr&) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxResetPersistingL2Cache() {
  return with_context([](Runtime&, ContextPtr&) { return CUDA_SUCCESS; });
}

}  // namespace headrace::softgpu
