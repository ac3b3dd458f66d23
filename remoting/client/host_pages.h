// Page-aligned memory of this process, for page-locked host allocations.
#pragma once

#include <cstdint>

namespace headrace::client {

// 0 if there is none left.
std::uint64_t take_pages(std::uint64_t size);
void release_pages(std::uint64_t base, std::uint64_t size);

}  // namespace headrace::client
