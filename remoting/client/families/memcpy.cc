// Copies of linear memory. Those that wait and those that do not use the same frames: what is
// copied from the host has left this call's memory when it returns, what is copied to the host is
// there.
#include "client/captures.h"
#include "client/copies.h"
#include "client/process.h"
#include "client/remote.h"
#include "client/streams.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

// Whether the caller takes the copy for done when the call returns.
enum class Wait { no, yes };

// The copy as a node of a graph.
driverabi::MemcpyNode node_of(std::uint64_t destination, Side to, std::uint64_t source, Side from,
                              std::size_t size) {
  CUDA_MEMCPY3D what{};
  what.WidthInBytes = size;
  what.Height = what.Depth = 1;
  what.dstMemoryType = to == Side::device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  what.srcMemoryType = from == Side::device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  if (to == Side::device) {
    what.dstDevice = destination;
  } else {
    what.dstHost = reinterpret_cast<void*>(destination);
  }
  if (from == Side::device) {
    what.srcDevice = source;
  } else {
    what.srcHost = reinterpret_cast<const void*>(source);
  }
  return {what};
}

CUresult copy_on(CUstream stream, Wait wait, std::uint64_t destination, Side to,
                 std::uint64_t source, Side from, std::size_t size) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  std::uint64_t id = 0;
  if (const CUresult bad = resolve_stream(stream, id); bad != CUDA_SUCCESS) return bad;
  if (wait == Wait::yes) {
    if (const Graphs::Verdict forbidden = capture_forbids(*context, id)) return *forbidden;
    if (const Graphs::Verdict full = room_for(*context, id, from == Side::host ? size : 0)) {
      return *full;
    }
  } else if (const Graphs::Verdict captured = capture_work(
                 *context, id, [&] { return node_of(destination, to, source, from, size); },
                 from == Side::host ? size : 0)) {
    return *captured;
  }
  const CUresult result = copy(*context, destination, to, source, from, size, id);
  if (result != CUDA_SUCCESS || wait == Wait::no) return result;
  // The program may change the one and read the other from now on.
  if (is_shared(destination) || is_shared(source)) return synchronise(*context, id);
  if (to == from || to == Side::host) return result;
  return settle_upload(*context, id);
}

CUresult copy_to_device(CUstream stream, Wait wait, CUdeviceptr destination, const void* source,
                        std::size_t size) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  const std::uint64_t from = address_of(source);
  if (const CUresult bad = share_for_turn(from); bad != CUDA_SUCCESS) return bad;
  return copy_on(stream, wait, destination, device_side(destination), from, side_of(from), size);
}

CUresult copy_to_host(CUstream stream, Wait wait, void* destination, CUdeviceptr source,
                      std::size_t size) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  const std::uint64_t to = address_of(destination);
  return copy_on(stream, wait, to, side_of(to), source, device_side(source), size);
}

CUresult copy_anywhere(CUstream stream, Wait wait, CUdeviceptr destination, CUdeviceptr source,
                       std::size_t size) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (const CUresult bad = share_for_turn(source); bad != CUDA_SUCCESS) return bad;
  return copy_on(stream, wait, destination, side_of(destination), source, side_of(source), size);
}

}  // namespace

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr destination, const void* source, std::size_t size,
                              CUstream stream) {
  return copy_to_device(stream, Wait::no, destination, source, size);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr destination, const void* source, std::size_t size) {
  return copy_to_device(gen::implicit_stream(), Wait::yes, destination, source, size);
}

CUresult cuMemcpyDtoHAsync_v2(void* destination, CUdeviceptr source, std::size_t size,
                              CUstream stream) {
  return copy_to_host(stream, Wait::no, destination, source, size);
}

CUresult cuMemcpyDtoH_v2(void* destination, CUdeviceptr source, std::size_t size) {
  return copy_to_host(gen::implicit_stream(), Wait::yes, destination, source, size);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr destination, CUdeviceptr source, std::size_t size,
                              CUstream stream) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  return copy_on(stream, Wait::no, destination, device_side(destination), source,
                 device_side(source), size);
}

CUresult cuMemcpyAsync(CUdeviceptr destination, CUdeviceptr source, std::size_t size,
                       CUstream stream) {
  return copy_anywhere(stream, Wait::no, destination, source, size);
}

CUresult cuMemcpy(CUdeviceptr destination, CUdeviceptr source, std::size_t size) {
  return copy_anywhere(gen::implicit_stream(), Wait::yes, destination, source, size);
}

}  // namespace headrace::client::families
