// CUDA arrays (apispec/array.toml): charged to the slice like other device memory.
#include <algorithm>

#include "worker/bodies/bodies.h"

namespace headrace::worker::bodies {
namespace {

// Drivers lay out rows and slices as they like. What an array takes is known when it is there; this
// much of it is asked of the account before.
constexpr std::uint64_t sane = 1ull << 40;

bool least_bytes(const CUDA_ARRAY3D_DESCRIPTOR& wanted, std::uint64_t& bytes) {
  bytes = 1;
  for (const std::uint64_t factor :
       {std::uint64_t{wanted.Width}, std::max<std::uint64_t>(wanted.Height, 1),
        std::max<std::uint64_t>(wanted.Depth, 1)}) {
    if (factor == 0 || factor > sane / bytes) return false;
    bytes *= factor;
  }
  bytes = round_up(bytes, memory_unit);
  return true;
}

}  // namespace

CUresult cuArray3DCreate_v2(Session& session, const calls::CuArray3DCreate_v2& call) {
  constexpr unsigned carried = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
                               CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER;
  const CUDA_ARRAY3D_DESCRIPTOR& wanted = call.pAllocateArray;
  if ((wanted.Flags & ~carried) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  const DriverTable& driver = session.driver();
  if (driver.cuArray3DCreate_v2 == nullptr || driver.cuArrayGetMemoryRequirements == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  if (session.current().handle == 0) return CUDA_ERROR_INVALID_CONTEXT;
  const unsigned index = session.current().device;
  std::uint64_t charged = 0;
  if (!least_bytes(wanted, charged)) return CUDA_ERROR_INVALID_VALUE;
  if (!session.charge(charged)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUarray array = nullptr;
  CUresult result = driver.cuArray3DCreate_v2(&array, &wanted);
  if (result != CUDA_SUCCESS) {
    session.give_back(charged);
    return result;
  }
  CUDA_ARRAY_MEMORY_REQUIREMENTS needs{};
  result = driver.cuArrayGetMemoryRequirements(
      &needs, array, session.device_at(static_cast<std::int32_t>(index))->device);
  const std::uint64_t whole = round_up(needs.size, memory_unit);
  if (result == CUDA_SUCCESS && whole > charged) {
    if (session.charge(whole - charged)) {
      charged = whole;
    } else {
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  if (result == CUDA_SUCCESS) result = session.adopt(HandleKind::array, call.pHandle, array);
  if (result != CUDA_SUCCESS) {
    driver.cuArrayDestroy(array);
    session.give_back(charged);
    return result;
  }
  session.charge_handle(call.pHandle, index, charged);
  return CUDA_SUCCESS;
}

}  // namespace headrace::worker::bodies
