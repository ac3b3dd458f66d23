// Images of machine code (SASS), which this GPU cannot run. With HEADRACE_SOFTGPU_SASS=skip they
// load all the same, and their kernels complete without doing anything, so that the calls of
// programs that ship nothing else can be carried and timed. What such kernels should have computed
// is missing; the device's name says so.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "remoting/driverabi/cubin.h"
#include "remoting/driverabi/image.h"
#include "remoting/softgpu/compiler/client.h"
#include "remoting/softgpu/exec/kernel_abi.h"

namespace headrace::softgpu {

struct MachineCode {
  std::uint32_t sm = 0;
  std::vector<driverabi::KernelLayout> kernels;
  driverabi::CubinVariables variables;
};

// The machine code of an image: a cubin for whatever architecture, or the entry of a fatbin that
// runs on the advertised one. Nullopt when there is none that can be read.
std::optional<MachineCode> machine_code_of(const driverabi::Image& image);

// A module that consists of machine code alone.
ModuleInfo module_info(const MachineCode& code);

// What the launch rules and attributes read; without an entry, by which a skipped kernel is known.
KernelInfo kernel_info(const driverabi::KernelLayout& kernel);
sg_kernel_desc skipped_kernel(const driverabi::KernelLayout& kernel);
inline bool is_skipped(const sg_kernel_desc& kernel) { return kernel.entry == nullptr; }

}  // namespace headrace::softgpu
