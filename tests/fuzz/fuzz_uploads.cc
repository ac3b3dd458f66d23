// Images that a client uploads: what the worker's bounds check lets through is given to a driver,
// which reads the lengths from the image itself. Ours must then stay within the bytes.
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>

#include "driverabi/image.h"
#include "worker/bodies/image_bounds.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // As the worker keeps them: with a zero byte behind.
  const std::unique_ptr<std::uint8_t[]> blob = std::make_unique<std::uint8_t[]>(size + 1);
  if (size != 0) std::memcpy(blob.get(), data, size);
  if (!headrace::worker::bodies::image_within(blob.get(), size)) return 0;
  const std::optional<headrace::driverabi::Image> image = headrace::driverabi::image_at(blob.get());
  if (image) headrace::driverabi::kernels_of(*image, 80, 1 << 20);
  return 0;
}
