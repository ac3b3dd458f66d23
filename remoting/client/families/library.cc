// Libraries: images that belong to no context. Their kernels are launched as they are; a module of
// one exists per context, once somebody asks for it.
#include <memory>
#include <mutex>
#include <string>

#include "client/functions.h"
#include "client/images.h"
#include "client/jit_options.h"
#include "client/modules.h"
#include "client/process.h"
#include "client/remote.h"
#include "client/thread_state.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

// Libraries are for all devices of the program; the image is chosen for the one in use.
const Device& device_in_use() {
  const ThreadState& thread = ThreadState::of_this_thread();
  return thread.contexts.empty() ? *process().devices.front() : *thread.contexts.back()->device;
}

CUresult load(CUlibrary* out, PreparedImage& image, JitOptions& options) {
  Process& here = process();
  calls::CuLibraryLoadData call;
  if (const CUresult bad = upload_blob(image.bytes, call.blob); bad != CUDA_SUCCESS) return bad;
  call.library = here.handles.make(HandleKind::library);
  call.jit = options.wire();
  calls::CuLibraryLoadData::Reply reply;
  const CUresult result = trip_in(current_context_id(), call, reply).told();
  if (result != CUDA_SUCCESS) return result;
  options.write_back(reply.info_log, reply.error_log, reply.wall_time);
  log_refusal("library", reply.error_log);
  if (reply.load_result != CUDA_SUCCESS) return static_cast<CUresult>(reply.load_result);
  const std::shared_ptr<Library> library = std::make_shared<Library>();
  library->id = call.library;
  library->code.kernels = image.kernels;
  here.libraries.insert(library->id, library);
  *out = reinterpret_cast<CUlibrary>(library->id);
  return CUDA_SUCCESS;
}

std::shared_ptr<Library> find_library(CUlibrary handle) {
  return process().libraries.find(reinterpret_cast<std::uint64_t>(handle));
}

CUresult kernel_of(Library& library, const std::string& name, std::uint64_t& id) {
  const std::lock_guard<std::mutex> lock(library.code.mutex);
  if (const auto found = library.code.functions.find(name); found != library.code.functions.end()) {
    id = found->second;
    return CUDA_SUCCESS;
  }
  calls::CuLibraryGetKernel call;
  call.pKernel = process().handles.make(HandleKind::kernel);
  call.library = library.id;
  call.name = name;
  calls::CuLibraryGetKernel::Reply reply;
  const CUresult result = trip_in(current_context_id(), call, reply).told();
  if (result != CUDA_SUCCESS) return result;
  if (reply.refused != CUDA_SUCCESS) {
    log_refusal("kernel", reply.reason);
    return static_cast<CUresult>(reply.refused);
  }
  const std::shared_ptr<Function> kernel = std::make_shared<Function>();
  kernel->id = call.pKernel;
  kernel->name = name;
  kernel->library = library.id;
  keep_function(kernel, library.code, reply.attributes, reply.layout);
  library.code.functions.emplace(name, call.pKernel);
  id = call.pKernel;
  return CUDA_SUCCESS;
}

CUresult module_of(Library& library, Context& context, std::shared_ptr<Module>& module) {
  Process& here = process();
  const std::lock_guard<std::mutex> lock(library.mutex);
  if (const auto found = library.modules.find(context.id); found != library.modules.end()) {
    module = here.modules.find(found->second);
    if (module != nullptr) return CUDA_SUCCESS;
  }
  calls::CuLibraryGetModule call;
  call.pMod = here.handles.make(HandleKind::module);
  call.library = library.id;
  if (const CUresult bad = send_in(context.id, call); bad != CUDA_SUCCESS) return bad;
  module = std::make_shared<Module>();
  module->id = call.pMod;
  module->context = &context;
  module->library = library.id;
  module->code.kernels = library.code.kernels;
  here.modules.insert(module->id, module);
  library.modules[context.id] = module->id;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuLibraryLoadData(CUlibrary* out, const void* code, CUjit_option* options, void** values,
                           unsigned int count, CUlibraryOption*, void**, unsigned int) {
  // Library options (keep the caller's copy, share a host table) ask for nothing we could break:
  // the image has left the caller's memory when this returns.
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  if (const CUresult bad = jit.read(count, options, values); bad != CUDA_SUCCESS) return bad;
  PreparedImage prepared;
  if (const CUresult bad = prepare_image(code, device_in_use(), prepared); bad != CUDA_SUCCESS) {
    return bad;
  }
  return load(out, prepared, jit);
}

CUresult cuLibraryLoadFromFile(CUlibrary* out, const char* path, CUjit_option* options,
                               void** values, unsigned int count, CUlibraryOption*, void**,
                               unsigned int) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  if (const CUresult bad = jit.read(count, options, values); bad != CUDA_SUCCESS) return bad;
  PreparedImage prepared;
  if (const CUresult bad = prepare_file(path, device_in_use(), prepared); bad != CUDA_SUCCESS) {
    return bad;
  }
  return load(out, prepared, jit);
}

CUresult cuLibraryUnload(CUlibrary handle) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  Process& here = process();
  const std::shared_ptr<Library> library =
      here.libraries.take(reinterpret_cast<std::uint64_t>(handle));
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  {
    const std::lock_guard<std::mutex> lock(library->mutex);
    for (const auto& [context, module] : library->modules) forget_module(module);
  }
  const std::uint64_t id = library->id;
  here.functions.take_if([id](const Function& function) { return function.library == id; });
  calls::CuLibraryUnload call;
  call.library = id;
  return send_in(current_context_id(), call);
}

CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Library> library = find_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::uint64_t id = 0;
  const CUresult result = kernel_of(*library, name, id);
  if (result == CUDA_SUCCESS) *out = reinterpret_cast<CUkernel>(id);
  return result;
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary handle) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  const std::shared_ptr<Library> library = find_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (library->code.kernels == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  *count = static_cast<unsigned>(library->code.kernels->size());
  return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int count, CUlibrary handle) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  const std::shared_ptr<Library> library = find_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (kernels == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (library->code.kernels == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  for (unsigned i = 0; i < count && i < library->code.kernels->size(); ++i) {
    std::uint64_t id = 0;
    const CUresult result = kernel_of(*library, (*library->code.kernels)[i].name, id);
    if (result != CUDA_SUCCESS) return result;
    kernels[i] = reinterpret_cast<CUkernel>(id);
  }
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Library> library = find_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Module> module;
  const CUresult result = module_of(*library, *context, module);
  if (result == CUDA_SUCCESS) *out = reinterpret_cast<CUmodule>(module->id);
  return result;
}

// A variable of a library has an address in each context: that of the library's module there.
CUresult cuLibraryGetGlobal(CUdeviceptr* address, std::size_t* size, CUlibrary handle,
                            const char* name) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Library> library = find_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Module> module;
  if (const CUresult bad = module_of(*library, *context, module); bad != CUDA_SUCCESS) return bad;
  Global global;
  if (const CUresult bad = global_of(*module, name, global); bad != CUDA_SUCCESS) return bad;
  if (address != nullptr) *address = global.address;
  if (size != nullptr) *size = global.size;
  return CUDA_SUCCESS;
}

}  // namespace headrace::client::families
