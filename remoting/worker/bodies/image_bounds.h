// Drivers trust the sizes that images state about themselves. Images come from clients, so nothing
// may point beyond the bytes that were sent.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::worker::bodies {

// Whether an image (ELF, fat binary, or text) stays within its bytes. A zero byte follows them.
bool image_within(const std::uint8_t* data, std::size_t size);

}  // namespace headrace::worker::bodies
