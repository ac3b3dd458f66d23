// Small files that hold credentials or settings.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/errors.h"

namespace headrace {

// A regular file's contents, at most `limit` bytes.
Result<std::string> read_file(const std::string& path, std::size_t limit);
// The same for a file with a secret in it: refused if group or others may read or write it, or if
// it belongs to someone else (root's are accepted).
Result<std::string> read_private_file(const std::string& path, std::size_t limit);
// Makes `path` new with mode 0600; fails if it exists.
Result<void> write_private_file(const std::string& path, std::string_view text);
// Makes a folder 0700, or checks that the existing one is ours alone.
Result<void> make_private_folder(const std::string& path);

}  // namespace headrace
