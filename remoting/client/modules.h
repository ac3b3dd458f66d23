// What the families of modules and libraries share.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>

#include "client/state.h"

namespace headrace::client {

// A global variable of a module, asked for once.
CUresult global_of(Module& module, const std::string& name, Global& global);
// With its functions and the records of its globals.
void forget_module(std::uint64_t module);

}  // namespace headrace::client
