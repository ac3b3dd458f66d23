// Records of device memory that bodies of several families make.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "client/state.h"

namespace headrace::client {

CUresult record_allocation(Context& context, std::uint64_t base, std::uint64_t size, bool pooled);

}  // namespace headrace::client
