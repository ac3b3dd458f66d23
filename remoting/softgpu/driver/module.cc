#include "remoting/softgpu/driver/module.h"

#include <algorithm>
#include <cstring>

#include "remoting/softgpu/device/log.h"
#include "remoting/softgpu/driver/runtime.h"

namespace headrace::softgpu {
namespace {

// Optimising a kernel for which quick code comes first takes half a second and more.
constexpr std::chrono::milliseconds kFirstQuestion{200};
constexpr std::chrono::milliseconds kBetweenQuestions{100};

// Writes addresses of the instance's own variables into its image.
CUresult relocate(const ModuleInfo& info, std::uint64_t base, std::vector<std::uint8_t>* image) {
  std::map<std::string, std::uint64_t> addresses;
  for (const GlobalInfo& global : info.globals) addresses[global.name] = base + global.offset;
  for (const RelocationInfo& relocation : info.relocations) {
    auto target = addresses.find(relocation.target);
    if (target == addresses.end()) {
      log("initialiser refers to " + relocation.target + ", which is no variable of the module");
      return CUDA_ERROR_INVALID_PTX;
    }
    if (relocation.offset + 8 > info.globals_bytes) return CUDA_ERROR_INVALID_PTX;
    if (image->size() < relocation.offset + 8) image->resize(relocation.offset + 8);
    std::uint64_t value = target->second + static_cast<std::uint64_t>(relocation.addend);
    std::memcpy(image->data() + relocation.offset, &value, sizeof value);
  }
  return CUDA_SUCCESS;
}

}  // namespace

KernelCode::KernelCode(const ModuleInfo& module, const KernelInfo& info,
                       const driverabi::KernelLayout* machine, bool ptx)
    : module_(module),
      info_(info),
      ptx_(ptx),
      skipped_(machine == nullptr ? std::nullopt : std::optional(skipped_kernel(*machine))) {}

CUresult KernelCode::skip(const std::string& why) {
  log("skipped: " + info_.name + ": " + why);
  desc_.store(&*skipped_, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult KernelCode::compile(Runtime& runtime, JitOptions* options) {
  if (options == nullptr) remember_refusal("");
  if (compiled() != nullptr) return CUDA_SUCCESS;
  std::lock_guard<std::mutex> guard(mutex_);
  if (compiled() != nullptr) return CUDA_SUCCESS;
  if (!ptx_) return skip("machine code alone");
  if (failure_ == CUDA_SUCCESS) {
    JitResult<KernelObject> object = runtime.compiler().compile_in_tiers(module_, info_.name);
    std::string why;
    if (!object.ok()) {
      failure_ = result_of(object.error());
      why = text_of(object.error());
    } else if ((image_ = KernelImage::load(object.value().path, why)) != nullptr) {
      improvable_ = !object.value().final;
      next_question_ = std::chrono::steady_clock::now() + kFirstQuestion;
      desc_.store(image_->desc(), std::memory_order_release);
      return CUDA_SUCCESS;
    } else {
      failure_ = CUDA_ERROR_UNKNOWN;
    }
    failure_text_ = info_.name + ": " + why;
    if (skipped_ && failure_ != CUDA_ERROR_JIT_COMPILER_NOT_FOUND) return skip(why);
    if (options == nullptr) log("jit: " + failure_text_);
    if (failure_ == CUDA_ERROR_JIT_COMPILER_NOT_FOUND || failure_ == CUDA_ERROR_UNKNOWN ||
        failure_ == CUDA_ERROR_OPERATING_SYSTEM) {
      // The machine's state, not the kernel's: worth another try at the next call.
      CUresult out = failure_;
      failure_ = CUDA_SUCCESS;
      remember_refusal(failure_text_);
      if (options != nullptr) options->error(failure_text_);
      return out;
    }
  }
  remember_refusal(failure_text_);
  if (options != nullptr) options->error(failure_text_);
  return failure_;
}

void KernelCode::improve(Runtime& runtime) {
  if (!improvable_.load(std::memory_order_acquire)) return;
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !improvable_) return;  // somebody else is asking, or has asked
  const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
  if (now < next_question_) return;
  next_question_ = now + kBetweenQuestions;
  JitResult<std::optional<std::string>> path = runtime.compiler().better(module_, info_.name);
  if (path.ok() && !path.value()) return;
  improvable_ = false;
  std::string why;
  if (!path.ok()) {
    why = text_of(path.error());
  } else if ((optimised_ = KernelImage::load(*path.value(), why)) != nullptr) {
    desc_.store(optimised_->desc(), std::memory_order_release);
    log("jit: " + info_.name + ": optimised code from now on");
    return;
  }
  log("jit: " + info_.name + " stays as it was made at first: " + why);
}

Function::Function(ModulePtr module, KernelCode& code, std::shared_ptr<KernelSettings> settings)
    : code_(code),
      settings_(settings != nullptr ? std::move(settings) : std::make_shared<KernelSettings>()),
      program_(module->program()),
      context_(module->context()),
      globals_(module->globals()),
      context_id_(module->context_id()),
      module_handle_(module->handle) {}

Module::Module(const ContextPtr& context, ProgramPtr program, std::uint64_t library)
    : program_(std::move(program)),
      context_(context),
      context_id_(context->id()),
      library_(library) {}

CUresult Module::create(Runtime& runtime, const ContextPtr& context, ProgramPtr program,
                        std::uint64_t library, ModulePtr* out) {
  ModulePtr module(new Module(context, std::move(program), library));
  const ModuleInfo& info = module->program_->info();
  if (info.globals_bytes != 0) {
    DeviceMemory* memory = context->device().memory();
    std::uint64_t base =
        memory != nullptr ? memory->allocate(info.globals_bytes, context->handle, 0, true) : 0;
    if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    module->globals_ = base;
    std::vector<std::uint8_t> image = info.image;
    if (CUresult result = relocate(info, base, &image)) {
      memory->free(base, true);
      return result;
    }
    std::size_t given = std::min<std::size_t>(image.size(), info.globals_bytes);
    if (given != 0) std::memcpy(reinterpret_cast<void*>(base), image.data(), given);
    std::memset(reinterpret_cast<char*>(base) + given, 0, info.globals_bytes - given);
  }
  runtime.modules.add(module);
  *out = std::move(module);
  return CUDA_SUCCESS;
}

CUresult Module::function(Runtime& runtime, const std::string& name,
                          std::shared_ptr<KernelSettings> settings, bool compile,
                          FunctionPtr* out) {
  KernelCode* code = program_->find(name);
  if (code == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (compile) {
    if (CUresult result = code->compile(runtime, nullptr)) return result;
  }
  std::lock_guard<std::mutex> guard(mutex_);
  FunctionPtr& function = functions_[name];
  if (function == nullptr) {
    function = std::make_shared<Function>(shared_from_this(), *code, std::move(settings));
    runtime.functions.add(function);
  }
  *out = function;
  return CUDA_SUCCESS;
}

CUresult Module::global(const std::string& name, CUdeviceptr* address, std::size_t* bytes) const {
  for (const GlobalInfo& global : program_->info().globals) {
    if (global.name != name) continue;
    if (address != nullptr) *address = globals_ + global.offset;
    if (bytes != nullptr) *bytes = global.size;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

void Module::unload(Runtime& runtime) {
  ContextPtr context = context_.lock();
  if (context == nullptr) return;
  context->wait_all();  // kernels in flight may still use the variables
  std::map<std::string, FunctionPtr> functions;
  {
    std::lock_guard<std::mutex> guard(mutex_);
    functions.swap(functions_);
  }
  for (auto& [name, function] : functions) runtime.functions.remove(function->handle);
  DeviceMemory* memory = context->device().memory();
  if (globals_ != 0 && memory != nullptr && context->active()) memory->free(globals_, true);
}

std::shared_ptr<KernelSettings> Kernel::settings(CUdevice device) {
  std::lock_guard<std::mutex> guard(mutex_);
  std::shared_ptr<KernelSettings>& entry = settings_[device];
  if (entry == nullptr) entry = std::make_shared<KernelSettings>();
  return entry;
}

CUresult Library::module(Runtime& runtime, const ContextPtr& context, ModulePtr* out) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto found = modules_.find(context->id());
  // A context that was reset and used again has lost its instance.
  if (found != modules_.end() && runtime.modules.find(found->second->handle) != nullptr) {
    *out = found->second;
    return CUDA_SUCCESS;
  }
  if (CUresult result = Module::create(runtime, context, program_, handle, out)) return result;
  modules_[context->id()] = *out;
  return CUDA_SUCCESS;
}

CUresult Library::kernel(Runtime& runtime, const std::string& name, std::shared_ptr<Kernel>* out) {
  KernelCode* code = program_->find(name);
  if (code == nullptr) return CUDA_ERROR_NOT_FOUND;
  std::lock_guard<std::mutex> guard(mutex_);
  std::shared_ptr<Kernel>& kernel = kernels_[name];
  if (kernel == nullptr) {
    kernel = std::make_shared<Kernel>(shared_from_this(), handle, *code);
    runtime.kernels.add(kernel);
  }
  *out = kernel;
  return CUDA_SUCCESS;
}

void Library::unload(Runtime& runtime) {
  std::lock_guard<std::mutex> guard(mutex_);
  for (auto& [name, kernel] : kernels_) runtime.kernels.remove(kernel->handle);
  for (auto& [context, module] : modules_) {
    if (runtime.modules.remove(module->handle) != nullptr) module->unload(runtime);
  }
  kernels_.clear();
  modules_.clear();
}

CUresult find_function(Runtime& runtime, CUfunction handle, FunctionPtr* out) {
  if (kind_of(handle) != HandleKind::kernel) {
    *out = runtime.functions.find(handle);
    if (*out == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return (*out)->code().compile(runtime, nullptr);
  }
  std::shared_ptr<Kernel> kernel = runtime.kernels.find(handle);
  std::shared_ptr<Library> library = kernel != nullptr ? kernel->library() : nullptr;
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  ContextPtr context;
  if (CUresult result = runtime.current(&context)) return result;
  ModulePtr module;
  if (CUresult result = library->module(runtime, context, &module)) return result;
  return module->function(runtime, kernel->code().name(),
                          kernel->settings(context->device().ordinal), true, out);
}

}  // namespace headrace::softgpu
