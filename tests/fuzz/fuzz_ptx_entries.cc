// The reader of `.entry` headers: parameters lie within their block.
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "driverabi/ptx_entries.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace::driverabi;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  looks_like_ptx(text);
  const std::optional<std::vector<KernelLayout>> kernels = read_ptx_entries(text);
  if (!kernels) return 0;
  for (const KernelLayout& kernel : *kernels) {
    for (const ParamSlot& slot : kernel.params) {
      if (std::uint64_t{slot.offset} + slot.size > kernel.param_bytes) std::abort();
    }
  }
  return 0;
}
