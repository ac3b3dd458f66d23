// Device memory (apispec/memory.toml, memory_pool.toml). Every path asks the account first.
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "worker/bodies/bodies.h"

namespace headrace::worker::bodies {
namespace {

// Rows of a pitched allocation begin at multiples of this on all devices so far.
constexpr std::uint64_t widest_pitch = 512;

// An allocation, tried in the context in which it was asked for.
struct Request {
  SessionContext context;
  std::uint64_t life = 0;
  std::uint64_t charged = 0;
  std::optional<CUstream> stream;  // in whose order it is
  std::function<CUresult(CUdeviceptr&)> make;
  std::function<void(CUresult, CUdeviceptr)> answer;
};

// The slice is charged before the driver is asked; the driver's own refusal gives the charge back.
CUresult attempt(Session& session, const Request& request, CUdeviceptr& pointer) {
  const unsigned device = request.context.device;
  MemoryAccount& memory = session.memory();
  session.stream_frees().settle();
  if (!memory.charge(device, request.charged)) {
    if (!request.stream) return CUDA_ERROR_OUT_OF_MEMORY;
    session.stream_frees().reuse(*request.stream, device, request.charged);
    if (!memory.charge(device, request.charged)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = request.make(pointer);
  if (result == CUDA_SUCCESS) {
    session.add_allocation(pointer, {request.charged, device, request.context.handle});
  } else {
    memory.give_back(device, request.charged);
  }
  return result;
}

// Answers now; or, where memory is about to come back, once there is enough of it.
void try_until_sure(Session& session, const std::shared_ptr<Request>& request) {
  CUdeviceptr pointer = 0;
  const CUresult result = attempt(session, *request, pointer);
  if (result != CUDA_ERROR_OUT_OF_MEMORY || !session.memory_returns()) {
    return request->answer(result, pointer);
  }
  session.when_memory_returns([&session, request] {
    if (session.life(request->context.handle) != request->life) {
      return request->answer(CUDA_ERROR_CONTEXT_IS_DESTROYED, 0);
    }
    session.enter(request->context);
    try_until_sure(session, request);
  });
}

template <typename Call>
std::optional<CUresult> allocate(
    Session& session, std::uint32_t number, std::uint64_t bytes, std::optional<CUstream> stream,
    std::function<CUresult(CUdeviceptr&)> make,
    std::function<void(typename Call::Reply&)> complete = [](typename Call::Reply&) {}) {
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  if (session.current().handle == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > UINT64_MAX - memory_unit) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::shared_ptr<Request> request = std::make_shared<Request>();
  request->context = session.current();
  request->life = session.life(request->context.handle);
  request->charged = round_up(bytes, memory_unit);
  request->stream = stream;
  request->make = std::move(make);
  request->answer = [&session, number, complete](CUresult result, CUdeviceptr pointer) {
    typename Call::Reply reply;
    reply.dptr = pointer;
    complete(reply);
    session.answer(Waiting{Call::kType, number}, result, reply);
  };
  try_until_sure(session, request);
  return std::nullopt;
}

}  // namespace

std::optional<CUresult> cuMemAlloc_v2(Session& session, std::uint32_t number,
                                      const calls::CuMemAlloc_v2& call) {
  return allocate<calls::CuMemAlloc_v2>(session, number, call.bytesize, std::nullopt,
                                        [&session, bytes = call.bytesize](CUdeviceptr& pointer) {
                                          return session.driver().cuMemAlloc_v2(&pointer, bytes);
                                        });
}

std::optional<CUresult> cuMemAllocPitch_v2(Session& session, std::uint32_t number,
                                           const calls::CuMemAllocPitch_v2& call) {
  const std::uint64_t row = call.WidthInBytes;
  if (row == 0 || call.Height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (row > (1ull << 48) || call.Height > (1ull << 48) / round_up(row, widest_pitch)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const std::shared_ptr<std::size_t> pitch = std::make_shared<std::size_t>(0);
  return allocate<calls::CuMemAllocPitch_v2>(
      session, number, round_up(row, widest_pitch) * call.Height, std::nullopt,
      [&session, call, pitch](CUdeviceptr& pointer) {
        return session.driver().cuMemAllocPitch_v2(&pointer, pitch.get(), call.WidthInBytes,
                                                   call.Height, call.ElementSizeBytes);
      },
      [pitch](calls::CuMemAllocPitch_v2Reply& reply) { reply.pPitch = *pitch; });
}

CUresult cuMemFree_v2(Session& session, const calls::CuMemFree_v2& call) {
  if (call.dptr == 0) return CUDA_SUCCESS;
  if (session.find_allocation(call.dptr) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  const Allocation freed = session.take_allocation(call.dptr);
  session.later().run(
      [&session, address = call.dptr] { return session.driver().cuMemFree_v2(address); },
      [&session, address = call.dptr, freed](CUresult result) {
        if (result == CUDA_SUCCESS) {
          session.memory().give_back(freed.device, freed.charged);
        } else {
          session.add_allocation(address, freed);
        }
        session.keep(result);
      });
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(Session& session, const calls::CuMemGetInfo_v2&,
                         calls::CuMemGetInfo_v2Reply& reply) {
  if (session.current().handle == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  // Asked all the same, because a lost context answers here, too.
  std::size_t free = 0, total = 0;
  const CUresult result = session.driver().cuMemGetInfo_v2(&free, &total);
  if (result != CUDA_SUCCESS) return result;
  session.stream_frees().settle();
  const MemoryAccount::Info info = session.memory().info(session.current().device);
  reply.free = std::min<std::uint64_t>(info.free, info.total);
  reply.total = info.total;
  return CUDA_SUCCESS;
}

std::optional<CUresult> cuMemAllocAsync(Session& session, std::uint32_t number,
                                        const calls::CuMemAllocAsync& call) {
  CUstream stream = nullptr;
  if (!session.find(HandleKind::stream, call.hStream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  return allocate<calls::CuMemAllocAsync>(
      session, number, call.bytesize, stream,
      [&session, bytes = call.bytesize, stream](CUdeviceptr& pointer) {
        return HEADRACE_DRIVER_CALL(session, cuMemAllocAsync, &pointer, bytes, stream);
      });
}

std::optional<CUresult> cuMemAllocFromPoolAsync(Session& session, std::uint32_t number,
                                                const calls::CuMemAllocFromPoolAsync& call) {
  CUstream stream = nullptr;
  CUmemoryPool pool = nullptr;
  if (!session.find(HandleKind::stream, call.hStream, stream) ||
      !session.find(HandleKind::memory_pool, call.pool, pool)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return allocate<calls::CuMemAllocFromPoolAsync>(
      session, number, call.bytesize, stream,
      [&session, bytes = call.bytesize, pool, stream](CUdeviceptr& pointer) {
        return HEADRACE_DRIVER_CALL(session, cuMemAllocFromPoolAsync, &pointer, bytes, pool,
                                    stream);
      });
}

CUresult cuMemFreeAsync(Session& session, const calls::CuMemFreeAsync& call) {
  CUstream stream = nullptr;
  if (!session.find(HandleKind::stream, call.hStream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (call.dptr == 0) return CUDA_SUCCESS;
  if (session.find_allocation(call.dptr) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  const CUresult result = HEADRACE_DRIVER_CALL(session, cuMemFreeAsync, call.dptr, stream);
  if (result != CUDA_SUCCESS) return result;
  session.stream_frees().add(stream, session.take_allocation(call.dptr));
  return result;
}

CUresult cuMemPoolCreate(Session& session, const calls::CuMemPoolCreate& call) {
  CUmemPoolProps wanted = call.poolProps;
  if (wanted.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      wanted.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      wanted.handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUdevice device = 0;
  if (!session.find_device(wanted.location.id, device)) return CUDA_ERROR_INVALID_DEVICE;
  // Only what is known is passed on: the rest of the structure may hold anything.
  CUmemPoolProps properties{};
  properties.allocType = wanted.allocType;
  properties.location.type = wanted.location.type;
  properties.location.id = device;
  properties.maxSize = wanted.maxSize;
  CUmemoryPool pool = nullptr;
  CUresult result = HEADRACE_DRIVER_CALL(session, cuMemPoolCreate, &pool, &properties);
  if (result != CUDA_SUCCESS) return result;
  result = session.adopt(HandleKind::memory_pool, call.pool, pool);
  if (result != CUDA_SUCCESS) session.driver().cuMemPoolDestroy(pool);
  return result;
}

CUresult cuMemPoolSetAttribute(Session& session, const calls::CuMemPoolSetAttribute& call) {
  CUmemoryPool pool = nullptr;
  if (!session.find(HandleKind::memory_pool, call.pool, pool)) return CUDA_ERROR_INVALID_HANDLE;
  // All values are 32 or 64 bits wide, little-endian: the low part of one number serves both.
  std::uint64_t value = call.number;
  return HEADRACE_DRIVER_CALL(session, cuMemPoolSetAttribute, pool,
                              static_cast<CUmemPool_attribute>(call.attr), &value);
}

CUresult cuMemPoolGetAttribute(Session& session, const calls::CuMemPoolGetAttribute& call,
                               calls::CuMemPoolGetAttributeReply& reply) {
  CUmemoryPool pool = nullptr;
  if (!session.find(HandleKind::memory_pool, call.pool, pool)) return CUDA_ERROR_INVALID_HANDLE;
  std::uint64_t value = 0;
  const CUresult result = HEADRACE_DRIVER_CALL(session, cuMemPoolGetAttribute, pool,
                                               static_cast<CUmemPool_attribute>(call.attr), &value);
  reply.number = value;
  return result;
}

}  // namespace headrace::worker::bodies
