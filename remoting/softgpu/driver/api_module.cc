// Modules: what was loaded into one context.
#include <cuda.h>

#include "remoting/softgpu/device/settings.h"
#include "remoting/softgpu/driver/module.h"
#include "remoting/softgpu/driver/runtime.h"

namespace headrace::softgpu {
namespace {

CUresult instantiate(Runtime& runtime, ContextPtr& context, ProgramPtr program, CUmodule* out) {
  ModulePtr module;
  if (CUresult result = Module::create(runtime, context, std::move(program), 0, &module)) {
    return result;
  }
  *out = to_handle<CUmodule>(module->handle);
  return CUDA_SUCCESS;
}

template <typename Body>
CUresult with_module(CUmodule handle, Body&& body) noexcept {
  return with_runtime([&](Runtime& runtime) -> CUresult {
    ModulePtr module = runtime.modules.find(handle);
    if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    ContextPtr context = module->context();
    if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (CUresult result = context->sticky()) return result;
    return body(runtime, module);
  });
}

}  // namespace

CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned int count,
                            CUjit_option* options, void** values) {
  return with_context([&](Runtime& runtime, ContextPtr& context) -> CUresult {
    JitOptions jit;
    if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult result = JitOptions::read(count, options, values, &jit)) return result;
    ProgramPtr program;
    if (CUresult result = Program::load(runtime, image, jit, &program)) return result;
    return instantiate(runtime, context, std::move(program), out);
  });
}

CUresult cuModuleLoadData(CUmodule* out, const void* image) {
  return softgpu::cuModuleLoadDataEx(out, image, 0, nullptr, nullptr);
}
CUresult cuModuleLoadFatBinary(CUmodule* out, const void* image) {
  return softgpu::cuModuleLoadDataEx(out, image, 0, nullptr, nullptr);
}

CUresult cuModuleLoad(CUmodule* out, const char* path) {
  return with_context([&](Runtime& runtime, ContextPtr& context) -> CUresult {
    JitOptions jit;
    if (out == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
    ProgramPtr program;
    if (CUresult result = Program::load_file(runtime, path, jit, &program)) return result;
    return instantiate(runtime, context, std::move(program), out);
  });
}

CUresult cuModuleUnload(CUmodule handle) {
  return with_module(handle, [&](Runtime& runtime, ModulePtr& module) {
    if (module->library() != 0) return CUDA_ERROR_NOT_PERMITTED;  // goes with its library
    if (runtime.modules.remove(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    module->unload(runtime);
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = settings().eager_loading ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  return with_module(handle, [&](Runtime& runtime, ModulePtr& module) -> CUresult {
    if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    FunctionPtr function;
    if (CUresult result = module->function(runtime, name, nullptr, true, &function)) return result;
    *out = to_handle<CUfunction>(function->handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule handle) {
  return with_module(handle, [&](Runtime&, ModulePtr& module) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<unsigned>(module->program()->kernels().size());
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleEnumerateFunctions(CUfunction* out, unsigned int count, CUmodule handle) {
  return with_module(handle, [&](Runtime& runtime, ModulePtr& module) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    unsigned i = 0;
    for (KernelCode* kernel : module->program()->kernels()) {
      if (i == count) break;
      FunctionPtr function;
      if (CUresult result = module->function(runtime, kernel->name(), nullptr, false, &function)) {
        return result;
      }
      out[i++] = to_handle<CUfunction>(function->handle);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule handle,
                              const char* name) {
  return with_module(handle, [&](Runtime&, ModulePtr& module) {
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return module->global(name, address, bytes);
  });
}

// Texture and surface references are not there, so no module has any.
CUresult cuModuleGetTexRef(CUtexref*, CUmodule handle, const char*) {
  return with_module(handle, [](Runtime&, ModulePtr&) { return CUDA_ERROR_NOT_FOUND; });
}
CUresult cuModuleGetSurfRef(CUsurfref*, CUmodule handle, const char*) {
  return with_module(handle, [](Runtime&, ModulePtr&) { return CUDA_ERROR_NOT_FOUND; });
}

}  // namespace headrace::softgpu
