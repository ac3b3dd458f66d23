// Records of device memory that bodies of several families make.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/state.h"
#include "gen/calls.h"

namespace headrace::client {

CUresult record_allocation(Context& context, std::uint64_t base, std::uint64_t size, bool pooled);

// Who may access memory, as it travels.
CUresult access_to_wire(const CUmemAccessDesc* access, std::size_t count,
                        std::vector<calls::MemoryAccess>& out);

}  // namespace headrace::client
