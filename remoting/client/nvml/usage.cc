// What is taken of a device at this moment, by the reservation's own processes: the others on the
// GPU are not told.
#include <algorithm>
#include <utility>
#include <vector>

#include "client/nvml/answers.h"

namespace headrace::client::nvml {
namespace {

Return memory_of(std::size_t index, Memory& memory) {
  protocol::StatusReply state;
  const Return asked = ask_state(state);
  if (asked != success) return asked;
  if (index >= state.devices.size()) return gpu_is_lost;
  const protocol::SliceState& device = state.devices[index];
  memory.total = device.memory_bytes;
  memory.used = std::min(device.used_bytes, device.memory_bytes);
  memory.free = memory.total - memory.used;
  return success;
}

void put_process(const protocol::SliceProcess& from, ProcessInfoV1& to) {
  to = {from.process, from.used_bytes};
}
void put_process(const protocol::SliceProcess& from, ProcessInfoV2& to) {
  to = {from.process, from.used_bytes, no_instance, no_instance};
}

template <typename Info>
Return processes_of(const void* handle, unsigned* count, Info* out) {
  return with_device(handle, [&](const Device&, std::size_t index) {
    if (count == nullptr) return invalid_argument;
    protocol::StatusReply state;
    const Return asked = ask_state(state);
    if (asked != success) return asked;
    std::erase_if(state.processes,
                  [&](const protocol::SliceProcess& process) { return process.device != index; });
    const unsigned room = std::exchange(*count, static_cast<unsigned>(state.processes.size()));
    if (room < *count) return insufficient_size;
    if (*count != 0 && out == nullptr) return invalid_argument;
    for (std::size_t i = 0; i < state.processes.size(); ++i) {
      put_process(state.processes[i], out[i]);
    }
    return success;
  });
}

// Nothing but CUDA is carried.
Return no_processes(const void* handle, unsigned* count) {
  return with_device(handle, [&](const Device&, std::size_t) { return put(count, 0u); });
}

}  // namespace

HEADRACE_NVML int nvmlDeviceGetMemoryInfo(void* handle, Memory* out) {
  return with_device(handle, [&](const Device&, std::size_t index) {
    return out == nullptr ? invalid_argument : memory_of(index, *out);
  });
}

HEADRACE_NVML int nvmlDeviceGetMemoryInfo_v2(void* handle, MemoryV2* out) {
  return with_device(handle, [&](const Device&, std::size_t index) {
    if (out == nullptr) return invalid_argument;
    if (out->version != memory_v2_version) return argument_version_mismatch;
    Memory memory{};
    const Return result = memory_of(index, memory);
    if (result == success) {
      out->total = memory.total;
      out->reserved = 0;
      out->free = memory.free;
      out->used = memory.used;
    }
    return result;
  });
}

HEADRACE_NVML int nvmlDeviceGetComputeRunningProcesses(void* handle, unsigned* count,
                                                       ProcessInfoV1* out) {
  return processes_of(handle, count, out);
}
HEADRACE_NVML int nvmlDeviceGetComputeRunningProcesses_v2(void* handle, unsigned* count,
                                                          ProcessInfoV2* out) {
  return processes_of(handle, count, out);
}
HEADRACE_NVML int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count,
                                                          ProcessInfoV2* out) {
  return processes_of(handle, count, out);
}

#define HEADRACE_NO_PROCESSES(name)                              \
  HEADRACE_NVML int name(void* handle, unsigned* count, void*) { \
    return no_processes(handle, count);                          \
  }
HEADRACE_NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
HEADRACE_NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
HEADRACE_NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
HEADRACE_NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
HEADRACE_NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
HEADRACE_NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)
#undef HEADRACE_NO_PROCESSES

HEADRACE_NVML int nvmlSystemGetProcessName(unsigned pid, char* out, unsigned size) {
  return with_library([&](const Reservation&) {
    protocol::StatusReply state;
    const Return asked = ask_state(state);
    if (asked != success) return asked;
    for (const protocol::SliceProcess& process : state.processes) {
      if (process.process == pid) return put_text(process.program, out, size);
    }
    return not_found;
  });
}

}  // namespace headrace::client::nvml
