// Functions that are made of others, and the log of the driver, which is empty.
#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <mutex>
#include <set>

#include "remoting/driverabi/arrays.h"
#include "remoting/driverabi/stream_memory.h"

namespace headrace::softgpu {

// Bodies of other files.
decltype(::cuArray3DGetDescriptor_v2) cuArray3DGetDescriptor_v2;
decltype(::cuDeviceGetAttribute) cuDeviceGetAttribute;
decltype(::cuDeviceGetDefaultMemPool) cuDeviceGetDefaultMemPool;
decltype(::cuDeviceGetMemPool) cuDeviceGetMemPool;
decltype(::cuDeviceSetMemPool) cuDeviceSetMemPool;
decltype(::cuMemcpy3DAsync_v2) cuMemcpy3DAsync_v2;
decltype(::cuMemcpyAsync) cuMemcpyAsync;
decltype(::cuPointerGetAttribute) cuPointerGetAttribute;
decltype(::cuStreamBatchMemOp_v2) cuStreamBatchMemOp_v2;
decltype(::cuStreamSynchronize) cuStreamSynchronize;

#define HEADRACE_BODY(name) softgpu::name
#include "remoting/driverabi/composed_bodies.inc"
#undef HEADRACE_BODY

}  // namespace headrace::softgpu
