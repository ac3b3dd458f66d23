// Modules: the PTX of an image, compiled kernel by kernel when first wanted, and its instances in
// contexts with their global variables.
#pragma once

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "remoting/softgpu/compiler/client.h"
#include "remoting/softgpu/driver/context.h"
#include "remoting/softgpu/driver/jit_options.h"
#include "remoting/softgpu/driver/machine_code.h"
#include "remoting/softgpu/exec/executor.h"

namespace headrace::softgpu {

// One kernel of a program. Machine code is made once and kept; so is the reason why it cannot be.
// A large kernel's first code may have been made quickly; optimised code takes its place at a later
// launch. Descriptors of both differ in nothing but the code. A kernel of which there is only
// machine code, or whose PTX cannot be compiled beside machine code, is skipped: launches of it do
// nothing.
class KernelCode {
 public:
  // `machine`: what is known of its machine code, null if there is none; `ptx`: whether the module
  // has PTX for it. One of the two is there.
  KernelCode(const ModuleInfo& module, const KernelInfo& info,
             const driverabi::KernelLayout* machine, bool ptx);
  const KernelInfo& info() const { return info_; }
  const std::string& name() const { return info_.name; }

  // Fills `image` or, failing, `options`' error log (options may be null).
  CUresult compile(Runtime& runtime, JitOptions* options);
  const sg_kernel_desc* compiled() const { return desc_.load(std::memory_order_acquire); }
  // Takes optimised code if it is there by now; asks for it seldom, and never waits for it.
  void improve(Runtime& runtime);

 private:
  CUresult skip(const std::string& why);

  const ModuleInfo& module_;
  const KernelInfo& info_;
  const bool ptx_;
  const std::optional<sg_kernel_desc> skipped_;
  std::mutex mutex_;
  std::unique_ptr<KernelImage> image_;
  std::unique_ptr<KernelImage> optimised_;  // launches of image_ may still be under way
  std::atomic<bool> improvable_{false};
  std::chrono::steady_clock::time_point next_question_;
  std::atomic<const sg_kernel_desc*> desc_{nullptr};
  CUresult failure_ = CUDA_SUCCESS;
  std::string failure_text_;
};

// What was loaded, apart from any context.
class Program {
 public:
  // Finds the PTX in an image (PTX text, fatbin, fatbin wrapper) and looks into it. Machine code
  // counts only where it is skipped (machine_code.h).
  static CUresult load(Runtime& runtime, const void* image, JitOptions& options,
                       std::shared_ptr<Program>* out);
  static CUresult load_file(Runtime& runtime, const char* path, JitOptions& options,
                            std::shared_ptr<Program>* out);

  const ModuleInfo& info() const { return info_; }
  int ptx_version() const { return ptx_version_; }  // 80 for .target sm_80
  // What the machine code is for when there is no PTX; 0: made for the device.
  int binary_version() const { return binary_version_; }
  int constant_bytes() const { return constant_bytes_; }  // of its .const variables
  KernelCode* find(const std::string& name);
  std::vector<KernelCode*> kernels();

 private:
  Program(ModuleInfo info, std::optional<MachineCode> machine, bool ptx);
  static CUresult from_image(Runtime& runtime, const std::optional<driverabi::Image>& image,
                             JitOptions& options, std::shared_ptr<Program>* out);
  static CUresult from_text(Runtime& runtime, std::string text, std::optional<MachineCode> machine,
                            JitOptions& options, std::shared_ptr<Program>* out);

  ModuleInfo info_;
  const std::optional<MachineCode> machine_;
  int ptx_version_ = 0;
  int binary_version_ = 0;
  int constant_bytes_ = 0;
  std::vector<std::unique_ptr<KernelCode>> kernels_;
  std::map<std::string, KernelCode*> by_name_;
};
using ProgramPtr = std::shared_ptr<Program>;

// The PTX text of an image; NO_BINARY_FOR_GPU when it holds only SASS, INVALID_IMAGE when it is
// none.
CUresult extract_ptx(const std::vector<std::uint8_t>& bytes, std::string* text, std::string* why);

// Settings of a kernel on one device, shared by all functions that come from one CUkernel.
struct KernelSettings {
  std::atomic<int> max_dynamic_shared{0};  // 0: what is left of 48 KiB
  std::atomic<int> carveout{-1};
};

class Function {
 public:
  Function(std::shared_ptr<Module> module, KernelCode& code,
           std::shared_ptr<KernelSettings> settings);
  std::uint64_t handle = 0;
  KernelCode& code() const { return code_; }
  KernelSettings& settings() const { return *settings_; }
  const Program& program() const { return *program_; }
  std::uint64_t globals() const { return globals_; }
  std::uint64_t context_id() const { return context_id_; }
  ContextPtr context() const { return context_.lock(); }
  std::uint64_t module_handle() const { return module_handle_; }

 private:
  KernelCode& code_;
  std::shared_ptr<KernelSettings> settings_;
  ProgramPtr program_;  // keeps the code while launches of it are under way
  std::weak_ptr<Context> context_;
  std::uint64_t globals_, context_id_, module_handle_;
};
using FunctionPtr = std::shared_ptr<Function>;

class Module : public std::enable_shared_from_this<Module> {
 public:
  // Allocates and fills the globals. `library`: handle of the library it belongs to, or 0.
  static CUresult create(Runtime& runtime, const ContextPtr& context, ProgramPtr program,
                         std::uint64_t library, std::shared_ptr<Module>* out);
  std::uint64_t handle = 0;
  const ProgramPtr& program() const { return program_; }
  ContextPtr context() const { return context_.lock(); }
  std::uint64_t context_id() const { return context_id_; }
  std::uint64_t globals() const { return globals_; }
  std::uint64_t library() const { return library_; }

  // The one function object of that name, compiled (`compile`) or only named.
  CUresult function(Runtime& runtime, const std::string& name,
                    std::shared_ptr<KernelSettings> settings, bool compile, FunctionPtr* out);
  CUresult global(const std::string& name, CUdeviceptr* address, std::size_t* bytes) const;
  // Takes functions and globals away; the module is out of its table already.
  void unload(Runtime& runtime);

 private:
  Module(const ContextPtr& context, ProgramPtr program, std::uint64_t library);

  ProgramPtr program_;
  std::weak_ptr<Context> context_;
  const std::uint64_t context_id_, library_;
  std::uint64_t globals_ = 0;
  std::mutex mutex_;
  std::map<std::string, FunctionPtr> functions_;
};
using ModulePtr = std::shared_ptr<Module>;

class Library;

// A CUkernel: a kernel of a library, for any context.
class Kernel {
 public:
  Kernel(std::shared_ptr<Library> library, std::uint64_t library_handle, KernelCode& code)
      : library_(library), library_handle_(library_handle), code_(code) {}
  std::uint64_t handle = 0;
  std::shared_ptr<Library> library() const { return library_.lock(); }
  std::uint64_t library_handle() const { return library_handle_; }
  KernelCode& code() const { return code_; }
  std::shared_ptr<KernelSettings> settings(CUdevice device);

 private:
  std::weak_ptr<Library> library_;
  std::uint64_t library_handle_;
  KernelCode& code_;
  std::mutex mutex_;
  std::map<CUdevice, std::shared_ptr<KernelSettings>> settings_;
};

class Library : public std::enable_shared_from_this<Library> {
 public:
  explicit Library(ProgramPtr program) : program_(std::move(program)) {}
  std::uint64_t handle = 0;
  const ProgramPtr& program() const { return program_; }
  CUresult module(Runtime& runtime, const ContextPtr& context, ModulePtr* out);
  CUresult kernel(Runtime& runtime, const std::string& name, std::shared_ptr<Kernel>* out);
  void unload(Runtime& runtime);

 private:
  ProgramPtr program_;
  std::mutex mutex_;
  std::map<std::uint64_t, ModulePtr> modules_;  // by context id
  std::map<std::string, std::shared_ptr<Kernel>> kernels_;
};

// A CUfunction, or a CUkernel in its place, for the current context; compiled.
CUresult find_function(Runtime& runtime, CUfunction handle, FunctionPtr* out);

}  // namespace headrace::softgpu
