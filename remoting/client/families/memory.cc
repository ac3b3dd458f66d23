// Device memory. Allocations are recorded here, so that pointers can be told apart without asking.
#include <optional>
#include <vector>

#include "client/allocations.h"
#include "client/captures.h"
#include "client/process.h"
#include "client/remote.h"
#include "gen/client_families.h"

namespace headrace::client {

CUresult record_allocation(Context& context, std::uint64_t base, std::uint64_t size, bool pooled) {
  MemoryRange range;
  range.base = base;
  range.size = size;
  range.context = &context;
  range.pooled = pooled;
  if (process().memory.insert(range)) return CUDA_SUCCESS;
  log_line("the server gave out memory that is in use already");
  return CUDA_ERROR_UNKNOWN;
}

}  // namespace headrace::client

namespace headrace::client::families {
namespace {

void give_back(const Context& context, std::uint64_t base) {
  calls::CuMemFree_v2 back;
  back.dptr = base;
  send_in(context.id, back);
}

// Memory of the server at addresses that mean something else in this process. It is held until
// another try has got other addresses, and then given back.
class Collisions {
 public:
  explicit Collisions(const Context& context) : context_(context) {}
  ~Collisions() {
    try {
      for (const std::uint64_t base : held_) give_back(context_, base);
    } catch (...) {  // no memory for a frame: the session's end will free it
    }
  }
  Collisions(const Collisions&) = delete;
  Collisions& operator=(const Collisions&) = delete;

  bool hold(std::uint64_t base) {
    constexpr std::size_t tries = 4;
    if (held_.size() == tries) return false;
    held_.push_back(base);
    return true;
  }

 private:
  const Context& context_;
  std::vector<std::uint64_t> held_;
};

// Asks until the memory lies where nothing of this process does. `size` of what has come back.
template <typename Call, typename Size>
TripResult ask_for_memory(Context& context, const Call& call, typename Call::Reply& reply,
                          Size size) {
  Collisions collisions(context);
  for (;;) {
    const TripResult outcome = trip_in(context.id, call, reply);
    if (outcome.result != CUDA_SUCCESS || outcome.deferred != CUDA_SUCCESS ||
        process().device_addresses.keep_free(reply.dptr, size(reply))) {
      return outcome;
    }
    if (collisions.hold(reply.dptr)) continue;
    log_line("the server's device memory lies at addresses that this process uses");
    give_back(context, reply.dptr);
    return {CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS};
  }
}

// What an allocation brought back: memory is kept only when the program is told of success.
CUresult finish_allocation(Context& context, const TripResult& outcome, std::uint64_t base,
                           std::uint64_t size, CUdeviceptr* out) {
  if (outcome.result != CUDA_SUCCESS) return outcome.told();
  if (outcome.deferred != CUDA_SUCCESS) {
    give_back(context, base);
    return outcome.deferred;
  }
  *out = base;
  return record_allocation(context, base, size, /*pooled=*/false);
}

}  // namespace

CUresult cuMemAlloc_v2(CUdeviceptr* out, std::size_t size) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (out == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const Graphs::Verdict upset = capture_upset()) return *upset;
  calls::CuMemAlloc_v2 call;
  call.bytesize = size;
  calls::CuMemAlloc_v2::Reply reply;
  const TripResult outcome =
      ask_for_memory(*context, call, reply, [size](const auto&) { return size; });
  return finish_allocation(*context, outcome, reply.dptr, size, out);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* out, std::size_t* pitch, std::size_t width,
                            std::size_t height, unsigned int element_size) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (out == nullptr || pitch == nullptr || width == 0 || height == 0 ||
      (element_size != 4 && element_size != 8 && element_size != 16)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  calls::CuMemAllocPitch_v2 call;
  call.WidthInBytes = width;
  call.Height = height;
  call.ElementSizeBytes = element_size;
  calls::CuMemAllocPitch_v2::Reply reply;
  const TripResult outcome = ask_for_memory(
      *context, call, reply, [height](const auto& got) { return got.pPitch * height; });
  if (outcome.result == CUDA_SUCCESS) *pitch = reply.pPitch;
  return finish_allocation(*context, outcome, reply.dptr, reply.pPitch * height, out);
}

CUresult cuMemFree_v2(CUdeviceptr base) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (base == 0) return CUDA_SUCCESS;
  if (const Graphs::Verdict upset = capture_upset()) return *upset;
  const std::optional<MemoryRange> known = process().memory.find(base);
  if (!known || known->base != base || known->host() || known->module != 0 || known->mapped()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::optional<MemoryRange> range = process().memory.take(base, RangeKind::device);
  if (!range) return CUDA_ERROR_INVALID_VALUE;  // another thread was faster
  calls::CuMemFree_v2 call;
  call.dptr = base;
  // In the context that it was allocated in, whichever is current.
  return send_in(range->context->id, call);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* size, CUdeviceptr address) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  const std::optional<MemoryRange> range = process().memory.find(address);
  if (!range || range->kind == RangeKind::host_registered) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = range->base;
  if (size != nullptr) *size = range->size;
  return CUDA_SUCCESS;
}

}  // namespace headrace::client::families
