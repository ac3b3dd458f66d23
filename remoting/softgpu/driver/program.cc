#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "remoting/driverabi/fatbin.h"
#include "remoting/driverabi/image.h"
#include "remoting/softgpu/device/log.h"
#include "remoting/softgpu/device/settings.h"
#include "remoting/softgpu/driver/merge_ptx.h"
#include "remoting/softgpu/driver/module.h"
#include "remoting/softgpu/driver/runtime.h"

namespace headrace::softgpu {
namespace {

constexpr std::uint64_t kMaxPtx = std::uint64_t{256} << 20;

unsigned advertised() {
  return static_cast<unsigned>(settings().cc_major * 10 + settings().cc_minor);
}

// The entry the real driver would compile (the newest that is not above the device), otherwise the
// oldest one above it: a CPU is not bound by the advertised capability.
const driverabi::FatbinEntry* choose(const std::vector<driverabi::FatbinEntry>& entries) {
  const unsigned device = advertised();
  const driverabi::FatbinEntry* best = nullptr;
  auto better = [&](const driverabi::FatbinEntry& a, const driverabi::FatbinEntry& b) {
    bool a_fits = a.arch.sm <= device, b_fits = b.arch.sm <= device;
    if (a_fits != b_fits) return a_fits;
    return a_fits ? a.arch.sm > b.arch.sm : a.arch.sm < b.arch.sm;
  };
  for (const driverabi::FatbinEntry& entry : entries) {
    if (entry.kind != driverabi::EntryKind::ptx) continue;
    if (best == nullptr || better(entry, *best)) best = &entry;
  }
  return best;
}

// Whether all PTX of a fatbin is for devices above the advertised capability.
bool ptx_is_for_newer(const driverabi::Image& image) {
  if (image.kind != driverabi::ImageKind::fatbin) return false;
  const std::optional<std::vector<driverabi::FatbinEntry>> entries =
      driverabi::read_fatbin(image.bytes);
  const driverabi::FatbinEntry* entry = entries ? choose(*entries) : nullptr;
  return entry != nullptr && entry->arch.sm > advertised();
}

CUresult extract(const std::optional<driverabi::Image>& image, std::string* text,
                 std::string* why) {
  if (!image) {
    *why = "the image is neither a fatbin nor a cubin nor PTX";
    return CUDA_ERROR_INVALID_IMAGE;
  }
  if (image->kind == driverabi::ImageKind::cubin) {
    *why = "the image is a cubin; the software GPU runs PTX only";
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  if (image->kind == driverabi::ImageKind::ptx) {
    text->assign(reinterpret_cast<const char*>(image->bytes.data()), image->bytes.size());
    return CUDA_SUCCESS;
  }
  std::optional<std::vector<driverabi::FatbinEntry>> entries = driverabi::read_fatbin(image->bytes);
  if (!entries) {
    *why = "the fatbin is damaged";
    return CUDA_ERROR_INVALID_IMAGE;
  }
  const driverabi::FatbinEntry* entry = choose(*entries);
  if (entry == nullptr) {
    *why = "the fatbin holds no PTX; the software GPU runs PTX only";
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  std::vector<std::uint8_t> plain;
  if (!driverabi::unpack(*entry, kMaxPtx, plain)) {
    *why = "the fatbin's PTX entry is damaged";
    return CUDA_ERROR_INVALID_IMAGE;
  }
  text->assign(plain.begin(), plain.end());
  return CUDA_SUCCESS;
}

class Stopwatch {
 public:
  float milliseconds() const {
    return std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - start_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

CUresult extract_ptx(const std::vector<std::uint8_t>& bytes, std::string* text, std::string* why) {
  return extract(driverabi::image_in(bytes), text, why);
}

Program::Program(ModuleInfo info, std::optional<MachineCode> machine, bool ptx)
    : info_(std::move(info)), machine_(std::move(machine)) {
  std::size_t digits = info_.target.find_first_of("0123456789");
  if (digits != std::string::npos) ptx_version_ = std::atoi(info_.target.c_str() + digits);
  for (const GlobalInfo& global : info_.globals) {
    if (global.constant) constant_bytes_ += static_cast<int>(global.size);
  }
  if (machine_ && !ptx) binary_version_ = static_cast<int>(machine_->sm);
  std::map<std::string, const driverabi::KernelLayout*> layouts;
  if (machine_) {
    for (const driverabi::KernelLayout& kernel : machine_->kernels) layouts[kernel.name] = &kernel;
  }
  const std::size_t compiled = ptx ? info_.kernels.size() : 0;
  if (ptx) {
    std::map<std::string, const driverabi::KernelLayout*> rest = layouts;
    for (const KernelInfo& kernel : info_.kernels) rest.erase(kernel.name);
    for (const auto& [name, layout] : rest) info_.kernels.push_back(kernel_info(*layout));
  }
  // From here on nothing is added to what the kernels refer to.
  for (std::size_t i = 0; i < info_.kernels.size(); ++i) {
    const KernelInfo& kernel = info_.kernels[i];
    auto layout = layouts.find(kernel.name);
    kernels_.push_back(std::make_unique<KernelCode>(
        info_, kernel, layout != layouts.end() ? layout->second : nullptr, i < compiled));
    by_name_[kernel.name] = kernels_.back().get();
  }
}

KernelCode* Program::find(const std::string& name) {
  auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

std::vector<KernelCode*> Program::kernels() {
  std::vector<KernelCode*> out;
  for (const std::unique_ptr<KernelCode>& kernel : kernels_) out.push_back(kernel.get());
  return out;
}

CUresult Program::from_text(Runtime& runtime, std::string text, std::optional<MachineCode> machine,
                            JitOptions& options, ProgramPtr* out) {
  while (!text.empty() && text.back() == '\0') text.pop_back();
  if (unsigned most = options.max_registers()) text = limit_registers(text, most);
  JitResult<ModuleInfo> info = runtime.compiler().inspect(text);
  if (!info.ok()) {
    const CUresult result = result_of(info.error());
    if (machine && result != CUDA_ERROR_JIT_COMPILER_NOT_FOUND) {
      log("skipped: a module whose PTX is not understood: " + text_of(info.error()));
      ModuleInfo instead = module_info(*machine);
      out->reset(new Program(std::move(instead), std::move(machine), false));
      return CUDA_SUCCESS;
    }
    options.error(text_of(info.error()));
    return result;
  }
  ProgramPtr program(new Program(std::move(info.value()), std::move(machine), true));
  // Kernels are compiled when they are looked up. One that stands alone is compiled at once if the
  // caller wants to read why it could not be: at the look-up there is no log to write to.
  if (options.wants_error_log() && program->kernels_.size() == 1) {
    if (CUresult result = program->kernels_[0]->compile(runtime, &options)) return result;
  } else if (options.wants_error_log()) {
    // The others of the module work, so the load succeeds; the log names those that will not.
    for (const KernelInfo& kernel : program->info_.kernels) {
      if (!kernel.refused.empty()) options.error(kernel.name + ": " + kernel.refused);
    }
  }
  *out = std::move(program);
  return CUDA_SUCCESS;
}

CUresult Program::from_image(Runtime& runtime, const std::optional<driverabi::Image>& image,
                             JitOptions& options, ProgramPtr* out) {
  Stopwatch watch;
  std::optional<MachineCode> machine;
  if (image && settings().skip_sass) machine = machine_code_of(*image);
  std::string text, why;
  CUresult result = CUDA_ERROR_NO_BINARY_FOR_GPU;
  // Where a real device would run machine code, PTX for newer devices is passed over: the host side
  // picks launch shapes for this device, and kernels of another must not get them.
  if (!machine || !ptx_is_for_newer(*image)) result = extract(image, &text, &why);
  if (result == CUDA_SUCCESS) {
    result = from_text(runtime, std::move(text), std::move(machine), options, out);
  } else if (machine) {
    ModuleInfo info = module_info(*machine);
    out->reset(new Program(std::move(info), std::move(machine), false));
    result = CUDA_SUCCESS;
  } else {
    options.error(why);
  }
  options.write_back(watch.milliseconds());
  return result;
}

CUresult Program::load(Runtime& runtime, const void* image, JitOptions& options, ProgramPtr* out) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return from_image(runtime, driverabi::image_at(image), options, out);
}

CUresult Program::load_file(Runtime& runtime, const char* path, JitOptions& options,
                            ProgramPtr* out) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(file),
                                  std::istreambuf_iterator<char>()};
  return from_image(runtime, driverabi::image_in(bytes), options, out);
}

}  // namespace headrace::softgpu
