// The joining of PTX texts into one module, for cuLink*.
#pragma once

#include <string>
#include <vector>

namespace headrace::softgpu {

// One text that holds all: the head of the first with the highest .version, and no declaration of
// something that one of them defines.
std::string merge_ptx(const std::vector<std::string>& texts);

// The text with a limit on the registers of each entry that has none of its own (.maxnreg).
std::string limit_registers(const std::string& text, unsigned most);

}  // namespace headrace::softgpu
