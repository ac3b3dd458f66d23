// Libraries and kernels: what was loaded for all contexts.
#include <cuda.h>

#include "remoting/softgpu/driver/module.h"
#include "remoting/softgpu/driver/runtime.h"

namespace headrace::softgpu {
namespace {

using LibraryPtr = std::shared_ptr<Library>;
using KernelPtr = std::shared_ptr<Kernel>;

template <typename Body>
CUresult with_library(CUlibrary handle, Body&& body) noexcept {
  return with_runtime([&](Runtime& runtime) -> CUresult {
    LibraryPtr library = runtime.libraries.find(handle);
    if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return body(runtime, library);
  });
}

// The library's instance in the current context.
template <typename Body>
CUresult with_instance(CUlibrary handle, Body&& body) noexcept {
  return with_library(handle, [&](Runtime& runtime, LibraryPtr& library) -> CUresult {
    ContextPtr context;
    if (CUresult result = runtime.current(&context)) return result;
    if (CUresult result = context->sticky()) return result;
    ModulePtr module;
    if (CUresult result = library->module(runtime, context, &module)) return result;
    return body(module);
  });
}

CUresult keep(Runtime& runtime, ProgramPtr program, CUlibrary* out) {
  LibraryPtr library = std::make_shared<Library>(std::move(program));
  *out = to_handle<CUlibrary>(runtime.libraries.add(library));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuLibraryLoadData(CUlibrary* out, const void* image, CUjit_option* options, void** values,
                           unsigned int count, CUlibraryOption*, void**, unsigned int) {
  return with_runtime([&](Runtime& runtime) -> CUresult {
    JitOptions jit;
    if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult result = JitOptions::read(count, options, values, &jit)) return result;
    ProgramPtr program;
    if (CUresult result = Program::load(runtime, image, jit, &program)) return result;
    return keep(runtime, std::move(program), out);
  });
}

CUresult cuLibraryLoadFromFile(CUlibrary* out, const char* path, CUjit_option* options,
                               void** values, unsigned int count, CUlibraryOption*, void**,
                               unsigned int) {
  return with_runtime([&](Runtime& runtime) -> CUresult {
    JitOptions jit;
    if (out == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult result = JitOptions::read(count, options, values, &jit)) return result;
    ProgramPtr program;
    if (CUresult result = Program::load_file(runtime, path, jit, &program)) return result;
    return keep(runtime, std::move(program), out);
  });
}

CUresult cuLibraryUnload(CUlibrary handle) {
  return with_runtime([&](Runtime& runtime) {
    LibraryPtr library = runtime.libraries.remove(handle);
    if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    library->unload(runtime);
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  return with_library(handle, [&](Runtime& runtime, LibraryPtr& library) -> CUresult {
    if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    KernelPtr kernel;
    if (CUresult result = library->kernel(runtime, name, &kernel)) return result;
    // Compiled here, as the function of a module is at its look-up.
    if (CUresult result = kernel->code().compile(runtime, nullptr)) return result;
    *out = to_handle<CUkernel>(kernel->handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary handle) {
  return with_library(handle, [&](Runtime&, LibraryPtr& library) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<unsigned>(library->program()->kernels().size());
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryEnumerateKernels(CUkernel* out, unsigned int count, CUlibrary handle) {
  return with_library(handle, [&](Runtime& runtime, LibraryPtr& library) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    unsigned i = 0;
    for (KernelCode* code : library->program()->kernels()) {
      if (i == count) break;
      KernelPtr kernel;
      if (CUresult result = library->kernel(runtime, code->name(), &kernel)) return result;
      out[i++] = to_handle<CUkernel>(kernel->handle);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
  return with_instance(handle, [&](ModulePtr& module) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = to_handle<CUmodule>(module->handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary handle,
                            const char* name) {
  return with_instance(handle, [&](ModulePtr& module) {
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return module->global(name, address, bytes);
  });
}

// Managed variables and unified function pointers are not there, so no library has any.
CUresult cuLibraryGetManaged(CUdeviceptr*, size_t*, CUlibrary handle, const char*) {
  return with_library(handle, [](Runtime&, LibraryPtr&) { return CUDA_ERROR_NOT_FOUND; });
}
CUresult cuLibraryGetUnifiedFunction(void**, CUlibrary handle, const char*) {
  return with_library(handle, [](Runtime&, LibraryPtr&) { return CUDA_ERROR_NOT_FOUND; });
}

}  // namespace headrace::softgpu
