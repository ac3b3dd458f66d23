// Access between devices: slices do not see each other.
#include "client/process.h"
#include "client/remote.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

CUresult check_pair(CUdevice first, CUdevice second) {
  if (const CUresult state = library_state(); state != CUDA_SUCCESS) return state;
  Process& here = process();
  return here.device(first) == nullptr || here.device(second) == nullptr ? CUDA_ERROR_INVALID_DEVICE
                                                                         : CUDA_SUCCESS;
}

}  // namespace

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  if (const CUresult state = check_pair(device, peer); state != CUDA_SUCCESS) return state;
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *can = 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute, CUdevice source,
                                 CUdevice destination) {
  if (const CUresult state = check_pair(source, destination); state != CUDA_SUCCESS) return state;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (source == destination) return CUDA_ERROR_INVALID_DEVICE;
  *value = 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext, unsigned int) {
  const CUresult state = enter();
  return state != CUDA_SUCCESS ? state : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

CUresult cuCtxDisablePeerAccess(CUcontext) {
  const CUresult state = enter();
  return state != CUDA_SUCCESS ? state : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

}  // namespace headrace::client::families
