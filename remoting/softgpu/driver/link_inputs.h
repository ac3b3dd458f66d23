// What a link takes besides PTX text: PTX inside fat binaries, host objects and archives of them.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

namespace headrace::softgpu {

// The PTX texts of an object file (relocatable device code as nvcc puts it into host objects) or of
// all members of an archive. NO_BINARY_FOR_GPU when there is machine code only. The device runtime
// (libcudadevrt) is replaced by what this GPU has of it.
CUresult ptx_of_objects(const std::vector<std::uint8_t>& bytes, std::vector<std::string>* texts,
                        std::string* why);

}  // namespace headrace::softgpu
