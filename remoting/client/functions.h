// Functions of modules and kernels of libraries: CUDA takes either for the other, and so do we.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/state.h"
#include "gen/calls.h"

namespace headrace::client {

std::shared_ptr<Function> find_function(std::uint64_t handle);

inline std::shared_ptr<Function> find_function(CUfunction handle) {
  return find_function(reinterpret_cast<std::uint64_t>(handle));
}
inline std::shared_ptr<Function> find_function(CUkernel handle) {
  return find_function(reinterpret_cast<std::uint64_t>(handle));
}

// Takes over what the image and the server say about a kernel, and makes it findable. What the
// image says about parameters goes first: an older server cannot tell them.
std::shared_ptr<Function> keep_function(const std::shared_ptr<Function>& function,
                                        const CodeTable& code,
                                        const std::vector<calls::Attribute>& attributes,
                                        const std::vector<calls::ParamLayout>& layout);

void note_attribute(Function& function, int attribute, int value);
bool known_attribute(Function& function, int attribute, int& value);

CUresult param_info(const Function& function, std::size_t index, std::size_t* offset,
                    std::size_t* size);

}  // namespace headrace::client
