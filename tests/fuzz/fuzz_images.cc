// Kernel images as programs hand them over: fatbin, cubin or PTX of any content.
#include <cstdint>
#include <optional>

#include "driverabi/cubin.h"
#include "driverabi/image.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::optional<headrace::driverabi::Image> image =
      headrace::driverabi::image_in(headrace::driverabi::Bytes(data, size));
  if (image) headrace::driverabi::kernels_of(*image, 80, 1 << 20);
  headrace::driverabi::read_cubin_variables(headrace::driverabi::Bytes(data, size), 1 << 20);
  return 0;
}
