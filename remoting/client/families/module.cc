// Modules. Of an image only what the device needs travels, once.
#include <memory>
#include <mutex>
#include <string>

#include "client/functions.h"
#include "client/images.h"
#include "client/jit_options.h"
#include "client/modules.h"
#include "client/process.h"
#include "client/remote.h"
#include "gen/client_families.h"

namespace headrace::client {

CUresult global_of(Module& module, const std::string& name, Global& global) {
  {
    const std::lock_guard<std::mutex> lock(module.code.mutex);
    const auto found = module.code.globals.find(name);
    if (found != module.code.globals.end()) {
      global = found->second;
      return CUDA_SUCCESS;
    }
  }
  calls::CuModuleGetGlobal_v2 call;
  call.hmod = module.id;
  call.name = name;
  calls::CuModuleGetGlobal_v2::Reply reply;
  const CUresult result = trip_in(module.context->id, call, reply).told();
  if (result != CUDA_SUCCESS) return result;
  global = {reply.dptr, reply.bytes};
  const std::lock_guard<std::mutex> lock(module.code.mutex);
  if (module.code.globals.emplace(name, global).second && global.size != 0) {
    MemoryRange range;
    range.base = global.address;
    range.size = global.size;
    range.context = module.context;
    range.module = module.id;
    process().memory.insert(range);
  }
  return CUDA_SUCCESS;
}

void forget_module(std::uint64_t module) {
  process().modules.take(module);
  process().functions.take_if(
      [module](const Function& function) { return function.module == module; });
  process().memory.forget_module(module);
}

}  // namespace headrace::client

namespace headrace::client::families {
namespace {

CUresult load(CUmodule* out, PreparedImage& image, JitOptions& options, Context& context) {
  Process& here = process();
  calls::CuModuleLoadDataEx call;
  if (const CUresult bad = upload_blob(image.bytes, call.blob); bad != CUDA_SUCCESS) return bad;
  call.module = here.handles.make(HandleKind::module);
  call.jit = options.wire();
  calls::CuModuleLoadDataEx::Reply reply;
  if (const CUresult bad = trip_in(context.id, call, reply).told(); bad != CUDA_SUCCESS) return bad;
  options.write_back(reply.info_log, reply.error_log, reply.wall_time);
  log_refusal("module", reply.error_log);
  if (reply.load_result != CUDA_SUCCESS) return static_cast<CUresult>(reply.load_result);
  const std::shared_ptr<Module> module = std::make_shared<Module>();
  module->id = call.module;
  module->context = &context;
  module->code.kernels = image.kernels;
  here.modules.insert(module->id, module);
  *out = reinterpret_cast<CUmodule>(module->id);
  return CUDA_SUCCESS;
}

std::shared_ptr<Module> find_module(CUmodule handle) {
  return process().modules.find(reinterpret_cast<std::uint64_t>(handle));
}

CUresult function_of(Module& module, const std::string& name, std::uint64_t& id) {
  const std::lock_guard<std::mutex> lock(module.code.mutex);
  if (const auto found = module.code.functions.find(name); found != module.code.functions.end()) {
    id = found->second;
    return CUDA_SUCCESS;
  }
  calls::CuModuleGetFunction call;
  call.hfunc = process().handles.make(HandleKind::function);
  call.hmod = module.id;
  call.name = name;
  calls::CuModuleGetFunction::Reply reply;
  const CUresult result = trip_in(module.context->id, call, reply).told();
  if (result != CUDA_SUCCESS) return result;
  if (reply.refused != CUDA_SUCCESS) {
    log_refusal("kernel", reply.reason);
    return static_cast<CUresult>(reply.refused);
  }
  const std::shared_ptr<Function> function = std::make_shared<Function>();
  function->id = call.hfunc;
  function->name = name;
  function->context = module.context;
  function->module = module.id;
  keep_function(function, module.code, reply.attributes, reply.layout);
  module.code.functions.emplace(name, call.hfunc);
  id = call.hfunc;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned int count,
                            CUjit_option* options, void** values) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  if (const CUresult bad = jit.read(count, options, values); bad != CUDA_SUCCESS) return bad;
  PreparedImage prepared;
  if (const CUresult bad = prepare_image(image, *context->device, prepared); bad != CUDA_SUCCESS) {
    return bad;
  }
  return load(out, prepared, jit, *context);
}

CUresult cuModuleLoadData(CUmodule* out, const void* image) {
  return families::cuModuleLoadDataEx(out, image, 0, nullptr, nullptr);
}

CUresult cuModuleLoadFatBinary(CUmodule* out, const void* image) {
  return families::cuModuleLoadDataEx(out, image, 0, nullptr, nullptr);
}

CUresult cuModuleLoad(CUmodule* out, const char* path) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  PreparedImage prepared;
  if (const CUresult bad = prepare_file(path, *context->device, prepared); bad != CUDA_SUCCESS) {
    return bad;
  }
  JitOptions none;
  return load(out, prepared, none, *context);
}

CUresult cuModuleUnload(CUmodule handle) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  const std::shared_ptr<Module> module = find_module(handle);
  if (module == nullptr || module->library != 0) return CUDA_ERROR_INVALID_HANDLE;
  forget_module(module->id);
  calls::CuModuleUnload call;
  call.hmod = module->id;
  return send_in(module->context->id, call);
}

CUresult cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Module> module = find_module(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::uint64_t id = 0;
  const CUresult result = function_of(*module, name, id);
  if (result == CUDA_SUCCESS) *out = reinterpret_cast<CUfunction>(id);
  return result;
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule handle) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  const std::shared_ptr<Module> module = find_module(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (module->code.kernels == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  *count = static_cast<unsigned>(module->code.kernels->size());
  return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int count, CUmodule handle) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  const std::shared_ptr<Module> module = find_module(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (module->code.kernels == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  for (unsigned i = 0; i < count && i < module->code.kernels->size(); ++i) {
    std::uint64_t id = 0;
    const CUresult result = function_of(*module, (*module->code.kernels)[i].name, id);
    if (result != CUDA_SUCCESS) return result;
    functions[i] = reinterpret_cast<CUfunction>(id);
  }
  return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, std::size_t* size, CUmodule handle,
                              const char* name) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Module> module = find_module(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Global global;
  if (const CUresult bad = global_of(*module, name, global); bad != CUDA_SUCCESS) return bad;
  if (address != nullptr) *address = global.address;
  if (size != nullptr) *size = global.size;
  return CUDA_SUCCESS;
}

// Lazy: the runtimes then load images when they first need something of them.
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (const CUresult state = library_state(); state != CUDA_SUCCESS) return state;
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

}  // namespace headrace::client::families
