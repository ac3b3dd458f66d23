// Finds the kernels of a PTX text and their parameter layouts. Not a PTX parser: it reads `.entry`
// headers only, and leaves judging the text to the compiler.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "driverabi/kernel_layout.h"

namespace headrace::driverabi {

// Nullopt when an `.entry` header is not understood; the server can then be asked for the layout.
std::optional<std::vector<KernelLayout>> read_ptx_entries(std::string_view text);

// True when the text starts like PTX: comments and blanks, then a directive. Anything else is no
// image at all.
bool looks_like_ptx(std::string_view text);

}  // namespace headrace::driverabi
