// Cubins: whatever is said of a kernel lies within what a kernel can have.
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "driverabi/cubin.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace::driverabi;
  const Bytes bytes(data, size);
  elf_size(bytes.first(std::min<std::size_t>(64, size)));
  const std::optional<CubinInfo> info = read_cubin(bytes);
  if (!info) return 0;
  for (const KernelLayout& kernel : info->kernels) {
    for (const ParamSlot& slot : kernel.params) {
      // Whoever gathers parameters writes at these places of a block of param_bytes.
      if (std::uint64_t{slot.offset} + slot.size > kernel.param_bytes) std::abort();
    }
  }
  return 0;
}
