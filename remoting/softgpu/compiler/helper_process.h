// Finds or starts the compile helper.
#pragma once

#include <string>

#include "softgpu/compiler/client.h"

namespace headrace::softgpu {

// A connected socket, or -1 with `error` filled. With "unix:/path" only that helper is tried.
// Otherwise processes of one user with equal settings share a helper: whoever comes first starts
// it, on a socket that listens already, so that nobody ever waits for it to be ready.
int connect_to_helper(const CompilerSettings& settings, std::string& error);

}  // namespace headrace::softgpu
