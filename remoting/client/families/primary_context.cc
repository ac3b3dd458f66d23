// Primary contexts: retains are counted here; the first retain and the last release are carried.
#include <mutex>

#include "client/contexts.h"
#include "client/process.h"
#include "client/remote.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

CUresult find_device(CUdevice ordinal, Device*& device) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  device = process().device(ordinal);
  return device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice ordinal) {
  Device* device = nullptr;
  if (const CUresult state = find_device(ordinal, device); state != CUDA_SUCCESS) return state;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(device->primary_mutex);
  if (device->primary_references == 0) {
    calls::CuDevicePrimaryCtxRetain call;
    call.pctx = device->primary->id;
    call.dev = device->wire_ordinal;
    calls::CuDevicePrimaryCtxRetain::Reply reply;
    if (const CUresult result = trip_in(0, call, reply).told(); result != CUDA_SUCCESS)
      return result;
    device->primary->alive = true;
  }
  ++device->primary_references;
  *out = device->primary->handle();
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
  Device* device = nullptr;
  if (const CUresult state = find_device(ordinal, device); state != CUDA_SUCCESS) return state;
  CUresult result = CUDA_SUCCESS;
  {
    const std::lock_guard<std::mutex> lock(device->primary_mutex);
    if (device->primary_references == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--device->primary_references > 0) return CUDA_SUCCESS;
    device->primary->alive = false;
    calls::CuDevicePrimaryCtxRelease_v2 call;
    call.dev = device->wire_ordinal;
    calls::CuDevicePrimaryCtxRelease_v2::Reply reply;
    result = trip_in(0, call, reply).told();
  }
  forget_contents(*device->primary);
  return result == connection_lost_error ? result : CUDA_SUCCESS;
}

// Ends what lives in the context; those who retained it still do.
CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
  Device* device = nullptr;
  if (const CUresult state = find_device(ordinal, device); state != CUDA_SUCCESS) return state;
  CUresult result = CUDA_SUCCESS;
  {
    const std::lock_guard<std::mutex> lock(device->primary_mutex);
    if (device->primary_references == 0) return CUDA_SUCCESS;
    calls::CuDevicePrimaryCtxReset_v2 call;
    call.dev = device->wire_ordinal;
    calls::CuDevicePrimaryCtxReset_v2::Reply reply;
    result = trip_in(0, call, reply).told();
  }
  forget_contents(*device->primary);
  return result == connection_lost_error ? result : CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags) {
  if (const CUresult state = library_state(); state != CUDA_SUCCESS) return state;
  Device* const device = process().device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0) return CUDA_ERROR_INVALID_VALUE;
  device->primary->flags.store(flags);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int* flags, int* active) {
  if (const CUresult state = library_state(); state != CUDA_SUCCESS) return state;
  Device* const device = process().device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = device->primary->flags.load();
  *active = device->primary->alive.load() ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace headrace::client::families
