// Fills of device memory.
#include "client/captures.h"
#include "client/copies.h"
#include "client/process.h"
#include "client/remote.h"
#include "client/streams.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

// Where a fill goes, in bytes. One row has no pitch.
struct Area {
  std::uint64_t base = 0;
  std::uint64_t pitch = 0;
  std::uint64_t width = 0;
  std::uint64_t height = 1;
  std::uint64_t unit = 1;  // size of an element

  bool empty() const { return width == 0 || height == 0; }
  std::uint64_t span() const { return (height - 1) * pitch + width; }
};

// Checks and places a fill; `run` fills in and sends the call of its form.
template <typename Run>
CUresult fill(const Area& area, CUstream stream, Run run) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  std::uint64_t id = 0;
  if (const CUresult bad = resolve_stream(stream, id); bad != CUDA_SUCCESS) return bad;
  if (area.empty()) return CUDA_SUCCESS;
  if (area.base == 0 || area.base % area.unit != 0 || area.pitch % area.unit != 0 ||
      (area.height > 1 && area.pitch < area.width)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Host memory of ours is filled at the server, in its turn.
  HostTwins& twins = process().host_twins;
  if (const CUresult bad = twins.share(area.base); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = twins.push(); bad != CUDA_SUCCESS) return bad;
  const Target target = target_of(area.base, area.span());
  if (target == Target::outside) return CUDA_ERROR_INVALID_VALUE;
  return run(*context, id, target == Target::inside);
}

template <typename Value>
Graphs::Verdict captured_fill(const Context& context, std::uint64_t stream, CUdeviceptr base,
                              std::size_t pitch, Value value, std::size_t width,
                              std::size_t height) {
  return capture_work(context, stream, [&] {
    return driverabi::MemsetNode{{base, pitch, value, sizeof(Value), width, height}};
  });
}

template <typename Call, typename Value>
CUresult fill_row(CUdeviceptr base, Value Call::*field, Value value, std::size_t count,
                  CUstream stream) {
  if (count > UINT64_MAX / sizeof(Value)) return CUDA_ERROR_INVALID_VALUE;
  const Area area{base, 0, count * sizeof(Value), 1, sizeof(Value)};
  return fill(area, stream, [&](Context& context, std::uint64_t id, bool checked) {
    if (const Graphs::Verdict captured = captured_fill(context, id, base, 0, value, count, 1)) {
      return *captured;
    }
    Call call;
    call.dstDevice = base;
    call.*field = value;
    call.N = count;
    call.hStream = id;
    return send_or_ask(context.id, call, checked);
  });
}

template <typename Call, typename Value>
CUresult fill_rows(CUdeviceptr base, std::size_t pitch, Value Call::*field, Value value,
                   std::size_t width, std::size_t height, CUstream stream) {
  if (width > UINT64_MAX / sizeof(Value)) return CUDA_ERROR_INVALID_VALUE;
  const Area area{base, pitch, width * sizeof(Value), height, sizeof(Value)};
  return fill(area, stream, [&](Context& context, std::uint64_t id, bool checked) {
    if (const Graphs::Verdict captured =
            captured_fill(context, id, base, pitch, value, width, height)) {
      return *captured;
    }
    Call call;
    call.dstDevice = base;
    call.dstPitch = pitch;
    call.*field = value;
    call.Width = width;
    call.Height = height;
    call.hStream = id;
    return send_or_ask(context.id, call, checked);
  });
}

}  // namespace

CUresult cuMemsetD8Async(CUdeviceptr base, unsigned char value, std::size_t count,
                         CUstream stream) {
  return fill_row(base, &calls::CuMemsetD8Async::uc, std::uint8_t{value}, count, stream);
}

CUresult cuMemsetD16Async(CUdeviceptr base, unsigned short value, std::size_t count,
                          CUstream stream) {
  return fill_row(base, &calls::CuMemsetD16Async::us, std::uint16_t{value}, count, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr base, unsigned int value, std::size_t count,
                          CUstream stream) {
  return fill_row(base, &calls::CuMemsetD32Async::ui, std::uint32_t{value}, count, stream);
}

CUresult cuMemsetD2D8Async(CUdeviceptr base, std::size_t pitch, unsigned char value,
                           std::size_t width, std::size_t height, CUstream stream) {
  return fill_rows(base, pitch, &calls::CuMemsetD2D8Async::uc, std::uint8_t{value}, width, height,
                   stream);
}

CUresult cuMemsetD2D16Async(CUdeviceptr base, std::size_t pitch, unsigned short value,
                            std::size_t width, std::size_t height, CUstream stream) {
  return fill_rows(base, pitch, &calls::CuMemsetD2D16Async::us, std::uint16_t{value}, width, height,
                   stream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr base, std::size_t pitch, unsigned int value,
                            std::size_t width, std::size_t height, CUstream stream) {
  return fill_rows(base, pitch, &calls::CuMemsetD2D32Async::ui, std::uint32_t{value}, width, height,
                   stream);
}

}  // namespace headrace::client::families
