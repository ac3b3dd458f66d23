// Images that a program loads: which part of them a device needs, and how they travel.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "client/state.h"
#include "driverabi/image.h"

namespace headrace::client {

struct PreparedImage {
  std::vector<std::uint8_t> bytes;  // as uploaded
  ImageKernels kernels;
};

// From a load call's pointer. An error as the load call would give it: no image at all, or nothing
// in it for this device.
CUresult prepare_image(const void* image, const Device& device, PreparedImage& prepared);
// From a file's content.
CUresult prepare_file(const char* path, const Device& device, PreparedImage& prepared);

// Reads a whole file; an error as the load calls give it.
CUresult read_file(const char* path, std::vector<std::uint8_t>& content);

// Sends a block as a blob (PROTOCOL.md §7.6), compressed where that pays.
CUresult upload_blob(std::span<const std::uint8_t> bytes, std::uint64_t& blob);

}  // namespace headrace::client
