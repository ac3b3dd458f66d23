#include "remoting/softgpu/driver/copy.h"

#include <cstring>
#include <vector>

#include "remoting/softgpu/driver/capture.h"

namespace headrace::softgpu {
namespace {

// Work so small that handing it to another thread takes longer than doing it.
constexpr std::uint64_t kInline = 256 << 10;
// Pageable sources are copied aside up to this size; beyond it the call waits for its turn.
constexpr std::uint64_t kStaged = std::uint64_t{16} << 20;

std::uint8_t* at(std::uint64_t address) { return reinterpret_cast<std::uint8_t*>(address); }

template <typename Type, typename Host, typename Device>
void describe(const CopySide& side, SideKind kind, Type& type, Host& host, Device& device,
              std::size_t& pitch, std::size_t& rows) {
  if (kind == SideKind::host) {
    type = CU_MEMORYTYPE_HOST;
    host = reinterpret_cast<Host>(side.address);
  } else {
    type = kind == SideKind::device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED;
    device = side.address;
  }
  pitch = side.pitch;
  rows = side.pitch != 0 ? side.slice / side.pitch : 0;
}

driverabi::MemcpyNode node_of(const Copy& what, SideKind to, SideKind from) {
  CUDA_MEMCPY3D out{};
  describe(what.destination, to, out.dstMemoryType, out.dstHost, out.dstDevice, out.dstPitch,
           out.dstHeight);
  describe(what.source, from, out.srcMemoryType, out.srcHost, out.srcDevice, out.srcPitch,
           out.srcHeight);
  out.WidthInBytes = what.width;
  out.Height = what.height;
  out.Depth = what.depth;
  return {out};
}

// The other contexts that a copy has to be in order with. On the null stream, one between two
// devices begins when all that was given to either is over, and whatever is given to either later
// begins after it.
std::vector<ContextPtr> contexts_beside(Runtime& runtime, const Context& own, const Stream& stream,
                                        const Copy& what) {
  const Device* to = runtime.device_of(what.destination.address);
  const Device* from = runtime.device_of(what.source.address);
  std::vector<ContextPtr> out;
  if (!stream.legacy || to == nullptr || from == nullptr || to == from) return out;
  for (ContextPtr& context : runtime.contexts.all()) {
    const bool concerned = &context->device() == to || &context->device() == from;
    if (concerned && context.get() != &own && context->active()) out.push_back(std::move(context));
  }
  return out;
}

void submit_between_devices(Context& own, const StreamPtr& stream,
                            const std::vector<ContextPtr>& beside, const Copy& what) {
  for (const ContextPtr& other : beside) {
    own.submit(stream, nullptr, false, other->submit(other->legacy_stream(), nullptr));
  }
  const OperationPtr copied = own.submit(stream, [what] {
    what.run();
    return CUDA_SUCCESS;
  });
  for (const ContextPtr& other : beside) {
    other->submit(other->legacy_stream(), nullptr, false, copied);
  }
}

}  // namespace

std::uint64_t Copy::extent(const CopySide& side) const {
  unsigned __int128 last = static_cast<unsigned __int128>(depth - 1) * side.slice +
                           static_cast<unsigned __int128>(height - 1) * side.pitch + width;
  return last >> 62 != 0 ? 0 : static_cast<std::uint64_t>(last);
}

void Copy::run() const {
  for (std::size_t z = 0; z < depth; ++z) {
    const std::uint64_t from = source.address + z * source.slice;
    const std::uint64_t to = destination.address + z * destination.slice;
    if (height == 1 || (source.pitch == width && destination.pitch == width)) {
      std::memmove(at(to), at(from), width * height);
      continue;
    }
    for (std::size_t y = 0; y < height; ++y) {
      std::memmove(at(to + y * destination.pitch), at(from + y * source.pitch), width);
    }
  }
}

CUresult place_of(Runtime& runtime, std::uint64_t address, std::uint64_t size, bool expect_device,
                  Place* place) {
  if (Device* device = runtime.device_of(address)) {
    *place = Place::device;
    return device->memory()->contains(address, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  const bool pinned = runtime.host_memory().contains(address, size);
  if (expect_device && !pinned) return CUDA_ERROR_INVALID_VALUE;
  *place = pinned ? Place::pinned : Place::pageable;
  return CUDA_SUCCESS;
}

CUresult copy(CUstream handle, const Copy& what, SideKind to, SideKind from, bool async) {
  return with_stream(
      handle, [&](Runtime& runtime, ContextPtr& context, StreamPtr& stream) -> CUresult {
        if (what.empty()) return CUDA_SUCCESS;
        std::uint64_t to_bytes = what.extent(what.destination),
                      from_bytes = what.extent(what.source);
        if (to_bytes == 0 || from_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
        if (what.destination.address == 0 || what.source.address == 0)
          return CUDA_ERROR_INVALID_VALUE;
        Place target = Place::pageable, origin = Place::pageable;
        if (CUresult result = place_of(runtime, what.destination.address, to_bytes,
                                       to == SideKind::device, &target)) {
          return result;
        }
        if (CUresult result = place_of(runtime, what.source.address, from_bytes,
                                       from == SideKind::device, &origin)) {
          return result;
        }
        if (!async) {
          if (Graphs::Verdict forbidden = capture_forbids(*context, *stream)) return *forbidden;
        } else if (Graphs::Verdict captured =
                       capture_work(*context, *stream, [&] { return node_of(what, to, from); })) {
          return *captured;
        }
        const std::vector<ContextPtr> beside = contexts_beside(runtime, *context, *stream, what);
        if (!beside.empty()) {
          submit_between_devices(*context, stream, beside, what);
          return CUDA_SUCCESS;
        }
        const std::uint64_t bytes = std::uint64_t{what.width} * what.height * what.depth;
        const bool touches_host = target != Place::device || origin != Place::device;
        const bool pageable = target == Place::pageable || origin == Place::pageable;
        // Between device and device even a "synchronous" copy only takes its place in the stream.
        bool must_wait = touches_host && (!async || target == Place::pageable);
        if (!must_wait && context->idle(stream) && (pageable || bytes <= kInline)) {
          what.run();
          return CUDA_SUCCESS;
        }
        if (!must_wait && origin == Place::pageable && what.height * what.depth == 1 &&
            bytes <= kStaged) {
          // The caller may reuse its memory at once.
          std::vector<std::uint8_t> staged(at(what.source.address),
                                           at(what.source.address) + bytes);
          context->submit(
              stream,
              [what, staged = std::move(staged)]() mutable {
                Copy late = what;
                late.source.address = reinterpret_cast<std::uint64_t>(staged.data());
                late.run();
                return CUDA_SUCCESS;
              },
              false, nullptr, bytes);
          return CUDA_SUCCESS;
        }
        if (must_wait || pageable) {
          context->wait(stream);
          if (CUresult result = context->sticky()) return result;
          what.run();
          return CUDA_SUCCESS;
        }
        context->submit(stream, [what] {
          what.run();
          return CUDA_SUCCESS;
        });
        return CUDA_SUCCESS;
      });
}

}  // namespace headrace::softgpu
