#include "client/copies.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "client/process.h"
#include "client/remote.h"

namespace headrace::client {
namespace {

// From here on bytes are written from where they lie; below, copying them into the buffer is
// cheaper than the records of their own.
constexpr std::size_t direct_from = 64 * 1024;

using Piece = std::span<const std::uint8_t>;

CUresult send_piece(Context& context, std::uint64_t destination, Piece piece,
                    std::uint64_t stream) {
  calls::CuMemcpyHtoDAsync_v2 call;
  call.dstDevice = destination;
  call.hStream = stream;
  if (piece.size() < direct_from) {
    call.srcHost = piece;
    return send_in(context.id, call);
  }
  // The fields around the bytes: destination and length before, the stream after.
  Writer before;
  before.u64(destination);
  before.u32(static_cast<std::uint32_t>(piece.size()));
  Writer after;
  after.u64(stream);
  return result_of(process().connection->send_around(context.id, decltype(call)::kType,
                                                     before.view(), piece, after.view()));
}

CUresult send_and_wait(Context& context, std::uint64_t destination, Piece piece,
                       std::uint64_t stream) {
  calls::CuMemcpyHtoDAsync_v2 call;
  call.dstDevice = destination;
  call.hStream = stream;
  call.srcHost = piece;
  calls::CuMemcpyHtoDAsync_v2::Reply reply;
  return trip_in(context.id, call, reply).told();
}

}  // namespace

Side side_of(std::uint64_t address) {
  const std::optional<MemoryRange> range = process().memory.find(address);
  return range && range->at_server() ? Side::device : Side::host;
}

Side device_side(std::uint64_t address) {
  const std::optional<MemoryRange> range = process().memory.find(address);
  return range && !range->at_server() ? Side::host : Side::device;
}

CUresult share_for_turn(std::uint64_t source) {
  Process& here = process();
  return here.callbacks.any() ? here.host_twins.share(source) : CUDA_SUCCESS;
}

bool is_shared(std::uint64_t address) {
  const std::optional<MemoryRange> range = process().memory.find(address);
  return range && range->shared;
}

CUresult push_for(Side first, Side second) {
  const bool at_server = first == Side::device || second == Side::device;
  return at_server ? process().host_twins.push() : CUDA_SUCCESS;
}

Target target_of(std::uint64_t address, std::uint64_t size) {
  const std::optional<MemoryRange> range = process().memory.find(address);
  if (!range) return Target::unknown;
  if (range->mapped()) {
    return process().memory.covered(address, size) ? Target::inside : Target::unknown;
  }
  const bool inside = range->at_server() && size <= range->size - (address - range->base);
  return inside ? Target::inside : Target::outside;
}

CUresult upload(Context& context, std::uint64_t destination, const void* source, std::size_t size,
                std::uint64_t stream) {
  const Target target = target_of(destination, size);
  if (target == Target::outside) return CUDA_ERROR_INVALID_VALUE;
  const std::uint8_t* from = static_cast<const std::uint8_t*>(source);
  if (const CUresult bad = process().host_twins.look_through_upload(destination, {from, size});
      bad != CUDA_SUCCESS) {
    return bad;
  }
  while (size > 0) {
    const Piece piece(from, std::min(size, max_piece));
    const CUresult result = target == Target::inside
                                ? send_piece(context, destination, piece, stream)
                                : send_and_wait(context, destination, piece, stream);
    if (result != CUDA_SUCCESS) return result;
    from += piece.size();
    destination += piece.size();
    size -= piece.size();
  }
  return CUDA_SUCCESS;
}

CUresult download(Context& context, void* destination, std::uint64_t source, std::size_t size,
                  std::uint64_t stream) {
  if (target_of(source, size) == Target::outside) return CUDA_ERROR_INVALID_VALUE;
  calls::CuMemcpyDtoHAsync_v2 call;
  call.srcDevice = source;
  call.ByteCount = size;
  call.hStream = stream;
  calls::CuMemcpyDtoHAsync_v2::Reply reply;
  return trip_in(context.id, call, reply,
                 std::span<std::uint8_t>(static_cast<std::uint8_t*>(destination), size))
      .told();
}

CUresult copy(Context& context, std::uint64_t destination, Side to, std::uint64_t source, Side from,
              std::size_t size, std::uint64_t stream) {
  if (size == 0) return CUDA_SUCCESS;
  if (destination == 0 || source == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = push_for(to, from); bad != CUDA_SUCCESS) return bad;
  void* const host_destination = reinterpret_cast<void*>(destination);
  const void* const host_source = reinterpret_cast<const void*>(source);
  if (to == Side::device && from == Side::device) {
    const Target first = target_of(destination, size);
    const Target second = target_of(source, size);
    if (first == Target::outside || second == Target::outside) return CUDA_ERROR_INVALID_VALUE;
    calls::CuMemcpyDtoDAsync_v2 call;
    call.dstDevice = destination;
    call.srcDevice = source;
    call.ByteCount = size;
    call.hStream = stream;
    return send_or_ask(context.id, call, first == Target::inside && second == Target::inside);
  }
  if (to == Side::device) return upload(context, destination, host_source, size, stream);
  if (from == Side::device) return download(context, host_destination, source, size, stream);
  // Both here: in the stream's order, so after what was enqueued before.
  if (const CUresult result = synchronise(context, stream); result != CUDA_SUCCESS) return result;
  std::memmove(host_destination, host_source, size);
  return CUDA_SUCCESS;
}

CUresult synchronise(Context& context, std::uint64_t stream) {
  calls::CuStreamSynchronize call;
  call.hStream = stream;
  calls::CuStreamSynchronize::Reply reply;
  return trip_in(context.id, call, reply).told();
}

}  // namespace headrace::client
