// Amounts of memory as people write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/errors.h"

namespace headrace::launcher {

// "8GiB", "8G", "512MiB", "512m", "1.5GiB", or a number of bytes. Binary throughout, except that
// "GB" and the like are refused, because they mean two things.
Result<std::uint64_t> parse_size(std::string_view text);
// "8 GiB", "512 MiB", "1.5 GiB".
std::string format_size(std::uint64_t bytes);

}  // namespace headrace::launcher
