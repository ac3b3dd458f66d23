#include "remoting/softgpu/driver/machine_code.h"

#include <string>
#include <utility>

#include "remoting/driverabi/fatbin.h"
#include "remoting/softgpu/device/limits.h"
#include "remoting/softgpu/device/settings.h"

namespace headrace::softgpu {
namespace {

constexpr std::uint64_t kMaxImage = std::uint64_t{1} << 30;
constexpr std::uint64_t kMaxVariables = std::uint64_t{1} << 32;

std::optional<MachineCode> read(driverabi::Bytes cubin) {
  std::optional<driverabi::CubinInfo> info = driverabi::read_cubin(cubin);
  std::optional<driverabi::CubinVariables> variables =
      driverabi::read_cubin_variables(cubin, kMaxVariables);
  if (!info || !variables) return std::nullopt;
  return MachineCode{info->sm, std::move(info->kernels), std::move(*variables)};
}

}  // namespace

std::optional<MachineCode> machine_code_of(const driverabi::Image& image) {
  if (image.kind == driverabi::ImageKind::cubin) return read(image.bytes);
  if (image.kind != driverabi::ImageKind::fatbin) return std::nullopt;
  const std::optional<std::vector<driverabi::FatbinEntry>> entries =
      driverabi::read_fatbin(image.bytes);
  if (!entries) return std::nullopt;
  const std::uint32_t device =
      static_cast<std::uint32_t>(settings().cc_major * 10 + settings().cc_minor);
  const int chosen = driverabi::select_entries(*entries, device).sass;
  std::vector<std::uint8_t> plain;
  if (chosen < 0 ||
      !driverabi::unpack((*entries)[static_cast<std::size_t>(chosen)], kMaxImage, plain)) {
    return std::nullopt;
  }
  return read(plain);
}

ModuleInfo module_info(const MachineCode& code) {
  ModuleInfo info;
  info.target = "sm_" + std::to_string(code.sm);
  for (const driverabi::KernelLayout& kernel : code.kernels) {
    info.kernels.push_back(kernel_info(kernel));
  }
  for (const driverabi::CubinVariable& variable : code.variables.variables) {
    info.globals.push_back({variable.name, variable.offset, variable.size, 1, variable.constant});
  }
  info.globals_bytes = code.variables.bytes;
  info.image = code.variables.initial;
  return info;
}

KernelInfo kernel_info(const driverabi::KernelLayout& kernel) {
  KernelInfo info;
  info.name = kernel.name;
  for (const driverabi::ParamSlot& slot : kernel.params) {
    info.params.push_back({slot.offset, slot.size});
  }
  info.param_bytes = kernel.param_bytes;
  info.static_shared = kernel.shared_bytes;
  info.local_bytes = kernel.local_bytes;
  info.max_threads = kernel.max_threads;
  return info;
}

sg_kernel_desc skipped_kernel(const driverabi::KernelLayout& kernel) {
  sg_kernel_desc desc{};
  desc.abi_version = SG_ABI_VERSION;
  desc.static_shared = kernel.shared_bytes;
  desc.local_bytes = kernel.local_bytes;
  desc.param_bytes = kernel.param_bytes;
  desc.n_params = static_cast<std::uint32_t>(kernel.params.size());
  desc.max_threads = kernel.max_threads;
  desc.registers = kernel.registers;
  return desc;
}

}  // namespace headrace::softgpu
