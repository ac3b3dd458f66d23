// What a program hands to a load call: a fatbin (bare or behind the runtime's wrapper), a cubin or
// PTX text. No size comes with the pointer, so the length is read from the image itself.
#pragma once
#include <optional>
#include <vector>

#include "driverabi/byte_view.h"
#include "driverabi/fatbin.h"
#include "driverabi/kernel_layout.h"

namespace headrace::driverabi {

enum class ImageKind { fatbin, cubin, ptx };

struct Image {
  ImageKind kind = ImageKind::ptx;
  Bytes bytes;  // PTX: without the terminating zero
};

// The caller's own memory, as CUDA's load calls take it. Follows the runtime's wrapper. Nullopt if
// it is none of the three.
std::optional<Image> image_at(const void* address);

// The same for bytes of known length from somebody else; a wrapper is refused there, since it holds
// a pointer.
std::optional<Image> image_in(Bytes bytes);

// Kernels of a whole image on a device: of the fatbin's entry that would run there (SASS if any
// fits, otherwise PTX). Nullopt when damaged or nothing fits; `limit` bounds decompressed sizes.
std::optional<std::vector<KernelLayout>> kernels_of(const Image& image, std::uint32_t device_sm,
                                                    std::uint64_t limit);

}  // namespace headrace::driverabi
