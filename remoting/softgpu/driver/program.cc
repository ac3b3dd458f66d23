#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "remoting/driverabi/fatbin.h"
#include "remoting/driverabi/image.h"
#include "remoting/softgpu/device/log.h"
#include "remoting/softgpu/device/settings.h"
#include "remoting/softgpu/driver/module.h"
#include "remoting/softgpu/driver/runtime.h"

namespace headrace::softgpu {
namespace {

constexpr std::uint64_t kMaxPtx = std::uint64_t{256} << 20;

// The entry the real driver would compile (the newest that is not above the device), otherwise the
// oldest one above it: a CPU is not bound by the advertised capability.
const driverabi::FatbinEntry* choose(const std::vector<driverabi::FatbinEntry>& entries) {
  const unsigned device = static_cast<unsigned>(settings().cc_major * 10 + settings().cc_minor);
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

CUresult extract_ptx(const void* image, std::string* text, std::string* why) {
  return extract(driverabi::image_at(image), text, why);
}

CUresult extract_ptx(const std::vector<std::uint8_t>& bytes, std::string* text, std::string* why) {
  return extract(driverabi::image_in(bytes), text, why);
}

Program::Program(ModuleInfo info) : info_(std::move(info)) {
  std::size_t digits = info_.target.find_first_of("0123456789");
  if (digits != std::string::npos) ptx_version_ = std::atoi(info_.target.c_str() + digits);
  for (const KernelInfo& kernel : info_.kernels) {
    kernels_.push_back(std::make_unique<KernelCode>(info_, kernel));
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

CUresult Program::from_text(Runtime& runtime, std::string text, JitOptions& options,
                            ProgramPtr* out) {
  while (!text.empty() && text.back() == '\0') text.pop_back();
  JitResult<ModuleInfo> info = runtime.compiler().inspect(text);
  if (!info.ok()) {
    options.error(info.error().message);
    return result_of(info.error());
  }
  ProgramPtr program(new Program(std::move(info.value())));
  // Kernels are compiled when they are looked up. One that stands alone is compiled at once if the
  // caller wants to read why it could not be: at the look-up there is no log to write to.
  if (options.wants_error_log() && program->kernels_.size() == 1) {
    if (CUresult result = program->kernels_[0]->compile(runtime, &options)) return result;
  }
  *out = std::move(program);
  return CUDA_SUCCESS;
}

CUresult Program::load(Runtime& runtime, const void* image, JitOptions& options, ProgramPtr* out) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stopwatch watch;
  std::string text, why;
  CUresult result = extract_ptx(image, &text, &why);
  if (result != CUDA_SUCCESS) {
    options.error(why);
  } else {
    result = from_text(runtime, std::move(text), options, out);
  }
  options.write_back(watch.milliseconds());
  return result;
}

CUresult Program::load_file(Runtime& runtime, const char* path, JitOptions& options,
                            ProgramPtr* out) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stopwatch watch;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(file),
                                  std::istreambuf_iterator<char>()};
  std::string text, why;
  CUresult result = extract_ptx(bytes, &text, &why);
  if (result != CUDA_SUCCESS) {
    options.error(why);
  } else {
    result = from_text(runtime, std::move(text), options, out);
  }
  options.write_back(watch.milliseconds());
  return result;
}

}  // namespace headrace::softgpu
