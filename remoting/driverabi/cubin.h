// Reads what a cubin (an ELF file for the GPU) says about its kernels: parameter layout, registers,
// shared and local memory. Never trusts an offset; damaged input gives nullopt.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "driverabi/byte_view.h"
#include "driverabi/kernel_layout.h"

namespace headrace::driverabi {

// Length of an ELF file, from its header (which must be wholly inside `header`, 64 bytes).
// Nullopt if it is no 64-bit little-endian ELF.
std::optional<std::uint64_t> elf_size(Bytes header);

struct CubinInfo {
  std::uint32_t sm = 0;  // 80 for 8.0; 0 = not understood
  std::vector<KernelLayout> kernels;
};

// Kernels only: device functions, aliases and other symbols are passed over.
std::optional<CubinInfo> read_cubin(Bytes image);

struct CubinVariable {
  std::string name;
  std::uint64_t offset = 0;  // in the block
  std::uint64_t size = 0;
  bool constant = false;
};

// All of an image's __device__ and __constant__ variables as one block. Managed ones are not among
// them; addresses that initial values refer to are not filled in.
struct CubinVariables {
  std::vector<CubinVariable> variables;
  std::uint64_t bytes = 0;
  std::vector<std::uint8_t> initial;  // the rest is zero
};

// Nullopt when damaged, or when the block would be larger than `limit`.
std::optional<CubinVariables> read_cubin_variables(Bytes image, std::uint64_t limit);

}  // namespace headrace::driverabi
