// Copies of 2-D and 3-D blocks. On the wire a host side is a run of packed rows.
#include <algorithm>
#include <cstring>
#include <vector>

#include "client/captures.h"
#include "client/copies.h"
#include "client/process.h"
#include "client/remote.h"
#include "client/streams.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

constexpr std::uint8_t host_neither = 0;
constexpr std::uint8_t host_source = 1;
constexpr std::uint8_t host_destination = 2;
constexpr std::uint64_t max_download = 64 << 20;  // of packed rows at a time

// One side of a copy: where its first byte lies and how rows and slices follow.
struct Plane {
  Side side = Side::host;
  std::uint64_t base = 0;
  std::uint64_t pitch = 0;
  std::uint64_t height = 0;  // rows of a slice
  // A side that is an array has no address: where in it the block begins.
  std::uint64_t array = 0;
  std::uint64_t x = 0, y = 0, z = 0;

  std::uint64_t row(std::uint64_t z, std::uint64_t y) const {
    return base + (z * height + y) * pitch;
  }
};

struct Extent {
  std::uint64_t width = 0;
  std::uint64_t height = 0;
  std::uint64_t depth = 0;
};

CUresult array_plane(CUarray handle, std::uint64_t x, std::uint64_t y, std::uint64_t z,
                     const Extent& extent, Plane& plane) {
  const std::shared_ptr<Array> array =
      process().arrays.find(reinterpret_cast<std::uint64_t>(handle));
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!array->shape.contains(x, y, z, extent.width, extent.height, extent.depth)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  plane.side = Side::device;
  plane.array = array->id;
  plane.x = x;
  plane.y = y;
  plane.z = z;
  return CUDA_SUCCESS;
}

CUresult plane_of(CUmemorytype type, const void* host, CUdeviceptr device, CUarray array,
                  std::uint64_t x, std::uint64_t y, std::uint64_t z, std::uint64_t pitch,
                  std::uint64_t height, const Extent& extent, Plane& plane) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      plane.base = reinterpret_cast<std::uint64_t>(host);
      plane.side = side_of(plane.base);
      break;
    case CU_MEMORYTYPE_DEVICE:
      plane.base = device;
      plane.side = device_side(device);
      break;
    case CU_MEMORYTYPE_UNIFIED:
      plane.base = device;
      plane.side = side_of(device);
      break;
    case CU_MEMORYTYPE_ARRAY:
      return array_plane(array, x, y, z, extent, plane);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (plane.base == 0) return CUDA_ERROR_INVALID_VALUE;
  plane.pitch = pitch != 0 ? pitch : extent.width + x;
  plane.height = height != 0 ? height : extent.height + y;
  if ((extent.height > 1 || extent.depth > 1) && plane.pitch < extent.width + x) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (extent.depth > 1 && plane.height < extent.height + y) return CUDA_ERROR_INVALID_VALUE;
  plane.base = plane.row(z, y) + x;
  return CUDA_SUCCESS;
}

// The sides of a frame, for the piece of a block that begins at (x, y, z) in it.
void set_source(calls::CuMemcpy3DAsync_v2& call, const Plane& from, std::uint64_t x,
                std::uint64_t y, std::uint64_t z) {
  if (from.array != 0) {
    call.src_array = from.array;
    call.src_x = from.x + x;
    call.src_y = from.y + y;
    call.src_z = from.z + z;
    return;
  }
  call.src = from.row(z, y) + x;
  call.src_pitch = from.pitch;
  call.src_height = from.height;
}

void set_destination(calls::CuMemcpy3DAsync_v2& call, const Plane& to, std::uint64_t x,
                     std::uint64_t y, std::uint64_t z) {
  if (to.array != 0) {
    call.dst_array = to.array;
    call.dst_x = to.x + x;
    call.dst_y = to.y + y;
    call.dst_z = to.z + z;
    return;
  }
  call.dst = to.row(z, y) + x;
  call.dst_pitch = to.pitch;
  call.dst_height = to.height;
}

calls::CuMemcpy3DAsync_v2 block_call(std::uint8_t host, const Extent& extent,
                                     std::uint64_t stream) {
  calls::CuMemcpy3DAsync_v2 call;
  call.hStream = stream;
  call.host = host;
  call.width = extent.width;
  call.height = extent.height;
  call.depth = extent.depth;
  return call;
}

// Whole rows of one slice, or a part of one row, in each frame.
CUresult upload_block(Context& context, const Plane& to, const Plane& from, const Extent& extent,
                      std::uint64_t stream) {
  std::vector<std::uint8_t> packed;
  const std::uint64_t columns = std::min<std::uint64_t>(extent.width, max_piece);
  const std::uint64_t rows = std::max<std::uint64_t>(1, max_piece / columns);
  for (std::uint64_t z = 0; z < extent.depth; ++z) {
    for (std::uint64_t y = 0; y < extent.height; y += rows) {
      for (std::uint64_t x = 0; x < extent.width; x += columns) {
        const Extent piece{std::min(columns, extent.width - x), std::min(rows, extent.height - y),
                           1};
        packed.resize(piece.width * piece.height);
        for (std::uint64_t row = 0; row < piece.height; ++row) {
          const std::span<std::uint8_t> bytes(packed.data() + row * piece.width, piece.width);
          std::memcpy(bytes.data(), reinterpret_cast<const void*>(from.row(z, y + row) + x),
                      bytes.size());
          if (to.array != 0) continue;  // what lies in arrays is no address for kernels
          if (const CUresult bad =
                  process().host_twins.look_through_upload(to.row(z, y + row) + x, bytes);
              bad != CUDA_SUCCESS) {
            return bad;
          }
        }
        calls::CuMemcpy3DAsync_v2 call = block_call(host_source, piece, stream);
        call.src_pitch = piece.width;
        call.src_height = piece.height;
        set_destination(call, to, x, y, z);
        call.data = packed;
        if (const CUresult result = send_in(context.id, call); result != CUDA_SUCCESS) {
          return result;
        }
      }
    }
  }
  return CUDA_SUCCESS;
}

CUresult download_block(Context& context, const Plane& to, const Plane& from, const Extent& extent,
                        std::uint64_t stream) {
  std::vector<std::uint8_t> packed;
  const std::uint64_t rows = std::max<std::uint64_t>(1, max_download / extent.width);
  for (std::uint64_t z = 0; z < extent.depth; ++z) {
    for (std::uint64_t y = 0; y < extent.height; y += rows) {
      const Extent piece{extent.width, std::min(rows, extent.height - y), 1};
      packed.resize(piece.width * piece.height);
      calls::CuMemcpy3DAsync_v2 call = block_call(host_destination, piece, stream);
      set_source(call, from, 0, y, z);
      call.dst_pitch = piece.width;
      call.dst_height = piece.height;
      calls::CuMemcpy3DAsync_v2::Reply reply;
      const CUresult result = trip_in(context.id, call, reply, packed).told();
      if (result != CUDA_SUCCESS) return result;
      for (std::uint64_t row = 0; row < piece.height; ++row) {
        std::memcpy(reinterpret_cast<void*>(to.row(z, y + row)), packed.data() + row * piece.width,
                    piece.width);
      }
    }
  }
  return CUDA_SUCCESS;
}

CUresult copy_on_device(Context& context, const Plane& to, const Plane& from, const Extent& extent,
                        std::uint64_t stream) {
  calls::CuMemcpy3DAsync_v2 call = block_call(host_neither, extent, stream);
  set_source(call, from, 0, 0, 0);
  set_destination(call, to, 0, 0, 0);
  return send_in(context.id, call);
}

CUresult copy_here(Context& context, const Plane& to, const Plane& from, const Extent& extent,
                   std::uint64_t stream) {
  if (const CUresult result = synchronise(context, stream); result != CUDA_SUCCESS) return result;
  for (std::uint64_t z = 0; z < extent.depth; ++z) {
    for (std::uint64_t y = 0; y < extent.height; ++y) {
      std::memmove(reinterpret_cast<void*>(to.row(z, y)),
                   reinterpret_cast<const void*>(from.row(z, y)), extent.width);
    }
  }
  return CUDA_SUCCESS;
}

CUresult enqueue_block(const CUDA_MEMCPY3D& what, CUstream stream, bool& shared) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  std::uint64_t id = 0;
  if (const CUresult bad = resolve_stream(stream, id); bad != CUDA_SUCCESS) return bad;
  const Extent extent{what.WidthInBytes, what.Height, what.Depth};
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return CUDA_SUCCESS;
  if (what.srcLOD != 0 || what.dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  if (what.srcMemoryType == CU_MEMORYTYPE_HOST || what.srcMemoryType == CU_MEMORYTYPE_UNIFIED) {
    const std::uint64_t source = what.srcMemoryType == CU_MEMORYTYPE_HOST
                                     ? reinterpret_cast<std::uint64_t>(what.srcHost)
                                     : what.srcDevice;
    if (const CUresult bad = share_for_turn(source); bad != CUDA_SUCCESS) return bad;
  }
  Plane to;
  Plane from;
  if (const CUresult bad = plane_of(what.dstMemoryType, what.dstHost, what.dstDevice, what.dstArray,
                                    what.dstXInBytes, what.dstY, what.dstZ, what.dstPitch,
                                    what.dstHeight, extent, to);
      bad != CUDA_SUCCESS) {
    return bad;
  }
  if (const CUresult bad = plane_of(what.srcMemoryType, what.srcHost, what.srcDevice, what.srcArray,
                                    what.srcXInBytes, what.srcY, what.srcZ, what.srcPitch,
                                    what.srcHeight, extent, from);
      bad != CUDA_SUCCESS) {
    return bad;
  }
  if (const Graphs::Verdict captured =
          capture_work(*context, id, [&] { return driverabi::MemcpyNode{what}; })) {
    return *captured;
  }
  shared = is_shared(to.base) || is_shared(from.base);
  if (const CUresult bad = push_for(to.side, from.side); bad != CUDA_SUCCESS) return bad;
  if (to.side == Side::device && from.side == Side::device) {
    return copy_on_device(*context, to, from, extent, id);
  }
  if (to.side == Side::device) return upload_block(*context, to, from, extent, id);
  if (from.side == Side::device) return download_block(*context, to, from, extent, id);
  return copy_here(*context, to, from, extent, id);
}

CUresult copy_block(const CUDA_MEMCPY3D& what, CUstream stream) {
  bool shared = false;
  return enqueue_block(what, stream, shared);
}

// For a program that takes the copy for done when the call returns.
CUresult copy_block_and_wait(const CUDA_MEMCPY3D& what) {
  bool shared = false;
  const CUstream stream = gen::implicit_stream();
  const CUresult result = enqueue_block(what, stream, shared);
  return result != CUDA_SUCCESS || !shared ? result : families::cuStreamSynchronize(stream);
}

CUDA_MEMCPY3D as_block(const CUDA_MEMCPY2D& flat) {
  CUDA_MEMCPY3D block{};
  block.srcXInBytes = flat.srcXInBytes;
  block.srcY = flat.srcY;
  block.srcMemoryType = flat.srcMemoryType;
  block.srcHost = flat.srcHost;
  block.srcDevice = flat.srcDevice;
  block.srcArray = flat.srcArray;
  block.srcPitch = flat.srcPitch;
  block.dstXInBytes = flat.dstXInBytes;
  block.dstY = flat.dstY;
  block.dstMemoryType = flat.dstMemoryType;
  block.dstHost = flat.dstHost;
  block.dstDevice = flat.dstDevice;
  block.dstArray = flat.dstArray;
  block.dstPitch = flat.dstPitch;
  block.WidthInBytes = flat.WidthInBytes;
  block.Height = flat.Height;
  block.Depth = 1;
  return block;
}

// The contexts of a copy between devices do not matter: an address or an array says where it lies.
CUDA_MEMCPY3D as_block(const CUDA_MEMCPY3D_PEER& peer) {
  CUDA_MEMCPY3D block{};
  block.srcXInBytes = peer.srcXInBytes;
  block.srcY = peer.srcY;
  block.srcZ = peer.srcZ;
  block.srcLOD = peer.srcLOD;
  block.srcMemoryType = peer.srcMemoryType;
  block.srcHost = peer.srcHost;
  block.srcDevice = peer.srcDevice;
  block.srcArray = peer.srcArray;
  block.srcPitch = peer.srcPitch;
  block.srcHeight = peer.srcHeight;
  block.dstXInBytes = peer.dstXInBytes;
  block.dstY = peer.dstY;
  block.dstZ = peer.dstZ;
  block.dstLOD = peer.dstLOD;
  block.dstMemoryType = peer.dstMemoryType;
  block.dstHost = peer.dstHost;
  block.dstDevice = peer.dstDevice;
  block.dstArray = peer.dstArray;
  block.dstPitch = peer.dstPitch;
  block.dstHeight = peer.dstHeight;
  block.WidthInBytes = peer.WidthInBytes;
  block.Height = peer.Height;
  block.Depth = peer.Depth;
  return block;
}

}  // namespace

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* what, CUstream stream) {
  return what == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_block(*what, stream);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* what) {
  return what == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_block_and_wait(*what);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* what, CUstream stream) {
  return what == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_block(as_block(*what), stream);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* what) {
  return what == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_block_and_wait(as_block(*what));
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* what) {
  return what == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_block_and_wait(as_block(*what));
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* what, CUstream stream) {
  return what == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_block(as_block(*what), stream);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* what) {
  return what == nullptr ? CUDA_ERROR_INVALID_VALUE : copy_block_and_wait(as_block(*what));
}

}  // namespace headrace::client::families
