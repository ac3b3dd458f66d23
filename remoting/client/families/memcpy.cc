// Copies of linear memory. Those that wait and those that do not use the same frames: what is
// copied from the host has left this call's memory when it returns, what is copied to the host is
// there.
#include "client/copies.h"
#include "client/process.h"
#include "client/remote.h"
#include "client/streams.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

CUresult copy_on(CUstream stream, std::uint64_t destination, Side to, std::uint64_t source,
                 Side from, std::size_t size) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  std::uint64_t id = 0;
  if (const CUresult bad = resolve_stream(stream, id); bad != CUDA_SUCCESS) return bad;
  return copy(*context, destination, to, source, from, size, id);
}

}  // namespace

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr destination, const void* source, std::size_t size,
                              CUstream stream) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  const std::uint64_t from = address_of(source);
  return copy_on(stream, destination, Side::device, from, side_of(from), size);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr destination, const void* source, std::size_t size) {
  return families::cuMemcpyHtoDAsync_v2(destination, source, size, gen::implicit_stream());
}

CUresult cuMemcpyDtoHAsync_v2(void* destination, CUdeviceptr source, std::size_t size,
                              CUstream stream) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  const std::uint64_t to = address_of(destination);
  return copy_on(stream, to, side_of(to), source, Side::device, size);
}

CUresult cuMemcpyDtoH_v2(void* destination, CUdeviceptr source, std::size_t size) {
  return families::cuMemcpyDtoHAsync_v2(destination, source, size, gen::implicit_stream());
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr destination, CUdeviceptr source, std::size_t size,
                              CUstream stream) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  return copy_on(stream, destination, Side::device, source, Side::device, size);
}

CUresult cuMemcpyAsync(CUdeviceptr destination, CUdeviceptr source, std::size_t size,
                       CUstream stream) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  return copy_on(stream, destination, side_of(destination), source, side_of(source), size);
}

CUresult cuMemcpy(CUdeviceptr destination, CUdeviceptr source, std::size_t size) {
  return families::cuMemcpyAsync(destination, source, size, gen::implicit_stream());
}

}  // namespace headrace::client::families
