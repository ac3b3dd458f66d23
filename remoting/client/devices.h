// Devices as the server described them at attach, in the order and choice that the program's
// environment asks for.
#pragma once

#include <string>
#include <vector>

#include "common/uuid.h"
#include "gen/messages.h"

namespace headrace::client {

struct Process;

// Which of the server's devices the program sees, in its order. `wanted` is CUDA_VISIBLE_DEVICES:
// null means all; otherwise indices or UUIDs (GPU-…, a unique beginning is enough), of which the
// first that does not exist hides itself and all after it. A device named twice hides all.
std::vector<int> visible_devices(const std::vector<protocol::Device>& devices, const char* wanted);

// Fills in process.devices with their primary contexts.
void make_devices(const protocol::Attached& attached, const char* wanted, Process& process);

}  // namespace headrace::client
