// Copies between host and device (apispec/memcpy.toml, PROTOCOL.md §7.5).
#include "worker/bodies/bodies.h"

namespace headrace::worker::bodies {
namespace {

enum HostSide : std::uint8_t { neither = 0, source = 1, destination = 2 };

// No extent of a copy reaches beyond this, so that products of the client's numbers cannot wrap.
constexpr std::uint64_t sane = 1ull << 47;

bool fits(std::uint64_t pitch, std::uint64_t height, std::uint64_t depth) {
  return pitch < sane && height < sane && depth < sane &&
         (pitch == 0 || height == 0 || depth == 0 ||
          (height <= sane / pitch && depth <= sane / pitch / height));
}

// Shared host memory has device addresses, too, but a driver takes a side at its word.
CUmemorytype type_of(Session& session, CUdeviceptr address) {
  return session.host_twins().holds(address) ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_DEVICE;
}

// False: a side is an array that is not there.
bool describe(Session& session, const calls::CuMemcpy3DAsync_v2& call, CUDA_MEMCPY3D& copy) {
  copy.srcMemoryType = type_of(session, call.src);
  copy.srcDevice = call.src;
  copy.srcPitch = call.src_pitch;
  copy.srcHeight = call.src_height;
  copy.dstMemoryType = type_of(session, call.dst);
  copy.dstDevice = call.dst;
  copy.dstPitch = call.dst_pitch;
  copy.dstHeight = call.dst_height;
  copy.WidthInBytes = call.width;
  copy.Height = call.height;
  copy.Depth = call.depth;
  if (call.src_array != 0) {
    if (!session.find(HandleKind::array, call.src_array, copy.srcArray)) return false;
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcXInBytes = call.src_x;
    copy.srcY = call.src_y;
    copy.srcZ = call.src_z;
  }
  if (call.dst_array != 0) {
    if (!session.find(HandleKind::array, call.dst_array, copy.dstArray)) return false;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstXInBytes = call.dst_x;
    copy.dstY = call.dst_y;
    copy.dstZ = call.dst_z;
  }
  return true;
}

}  // namespace

CUresult cuMemcpyHtoDAsync_v2(Session& session, const calls::CuMemcpyHtoDAsync_v2& call) {
  CUstream stream = nullptr;
  if (!session.find(HandleKind::stream, call.hStream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  return session.uploads().copy(call.dstDevice, call.srcHost, stream);
}

CUresult cuMemcpyDtoDAsync_v2(Session& session, const calls::CuMemcpyDtoDAsync_v2& call) {
  CUstream stream = nullptr;
  if (!session.find(HandleKind::stream, call.hStream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  if (session.host_twins().holds(call.dstDevice) || session.host_twins().holds(call.srcDevice)) {
    return HEADRACE_DRIVER_CALL(session, cuMemcpyAsync, call.dstDevice, call.srcDevice,
                                call.ByteCount, stream);
  }
  return session.driver().cuMemcpyDtoDAsync_v2(call.dstDevice, call.srcDevice, call.ByteCount,
                                               stream);
}

std::optional<CUresult> cuMemcpyDtoHAsync_v2(Session& session, std::uint32_t number,
                                             const calls::CuMemcpyDtoHAsync_v2& call) {
  CUstream stream = nullptr;
  if (!session.find(HandleKind::stream, call.hStream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (number == 0) return CUDA_ERROR_INVALID_VALUE;  // the bytes are the answer
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  if (call.ByteCount == 0) return CUDA_SUCCESS;
  if (call.ByteCount >= sane) return CUDA_ERROR_INVALID_VALUE;
  Source from;
  from.address = call.srcDevice;
  from.width = call.ByteCount;
  const CUresult result =
      session.downloads().begin(calls::CuMemcpyDtoHAsync_v2::kType, number, from, stream);
  if (result != CUDA_SUCCESS) return result;
  return std::nullopt;
}

std::optional<CUresult> cuMemcpy3DAsync_v2(Session& session, std::uint32_t number,
                                           const calls::CuMemcpy3DAsync_v2& call) {
  CUstream stream = nullptr;
  if (!session.find(HandleKind::stream, call.hStream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  if (!fits(call.width, call.height, call.depth) ||
      !fits(call.src_pitch, call.src_height, call.depth) ||
      !fits(call.dst_pitch, call.dst_height, call.depth)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (call.width == 0 || call.height == 0 || call.depth == 0) return CUDA_SUCCESS;
  CUDA_MEMCPY3D copy{};
  if (!describe(session, call, copy)) return CUDA_ERROR_INVALID_HANDLE;
  switch (call.host) {
    case neither:
      return session.driver().cuMemcpy3DAsync_v2(&copy, stream);
    case source: {
      if (call.data.size() != call.width * call.height * call.depth) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      copy.srcPitch = call.width;
      copy.srcHeight = call.height;
      return session.uploads().copy_rows(copy, call.data, stream);
    }
    case destination: {
      if (number == 0) return CUDA_ERROR_INVALID_VALUE;
      Source from;
      from.address = call.src;
      from.pitch = call.src_pitch;
      from.slice_pitch = call.src_pitch * call.src_height;
      from.width = call.width;
      from.height = call.height;
      from.depth = call.depth;
      from.array = copy.srcArray;
      from.x = copy.srcXInBytes;
      from.y = copy.srcY;
      from.z = copy.srcZ;
      const CUresult result =
          session.downloads().begin(calls::CuMemcpy3DAsync_v2::kType, number, from, stream);
      if (result != CUDA_SUCCESS) return result;
      return std::nullopt;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace headrace::worker::bodies
