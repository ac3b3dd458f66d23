// Every driver function that the tests call, by exported name.
#pragma once

#define DRIVER_FUNCTIONS(X)                                                                                                  \
  X(cuCtxCreate_v2)                                                                                                          \
  X(cuCtxDestroy_v2) X(cuCtxGetApiVersion) X(cuCtxGetCurrent) X(cuCtxGetDevice) X(cuCtxGetFlags) X(                          \
      cuCtxGetLimit) X(cuCtxGetStreamPriorityRange) X(cuCtxPopCurrent_v2) X(cuCtxPushCurrent_v2)                             \
      X(cuCtxSetCurrent) X(cuCtxSetLimit) X(cuCtxSynchronize) X(cuDeviceComputeCapability) X(                                \
          cuDeviceGet) X(cuDeviceGetAttribute) X(cuDeviceGetByPCIBusId) X(cuDeviceGetCount)                                  \
          X(cuDeviceGetDefaultMemPool) X(cuDeviceGetName) X(cuDeviceGetPCIBusId) X(                                          \
              cuDeviceGetUuid_v2) X(cuDevicePrimaryCtxGetState) X(cuDevicePrimaryCtxRelease_v2)                              \
              X(cuDevicePrimaryCtxReset_v2) X(cuDevicePrimaryCtxRetain) X(cuDeviceTotalMem_v2) X(                            \
                  cuDriverGetVersion) X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventElapsedTime)                            \
                  X(cuEventQuery) X(cuEventRecord) X(cuEventSynchronize) X(cuFuncGetAttribute) X(                            \
                      cuFuncGetModule) X(cuFuncSetAttribute) X(cuFuncSetCacheConfig) X(cuGetErrorName)                       \
                      X(cuGetErrorString) X(cuGetExportTable) X(cuGetProcAddress_v2) X(cuInit) X(                            \
                          cuKernelGetAttribute) X(cuKernelGetFunction) X(cuKernelSetAttribute) X(cuLaunchHostFunc)           \
                          X(cuLaunchKernel) X(cuLaunchKernelEx) X(cuLaunchCooperativeKernel) X(                              \
                              cuLibraryGetGlobal) X(cuLibraryGetKernel) X(cuLibraryGetModule)                                \
                              X(cuLibraryLoadData) X(cuLibraryUnload) X(cuLinkAddData_v2) X(                                 \
                                  cuLinkComplete) X(cuLinkCreate_v2) X(cuLinkDestroy) X(cuMemAllocAsync)                     \
                                  X(cuMemAllocHost_v2) X(cuMemAllocPitch_v2) X(cuMemAlloc_v2) X(                             \
                                      cuMemFreeAsync) X(cuMemFreeHost) X(cuMemFree_v2) X(cuMemGetAddressRange_v2)            \
                                      X(cuMemGetInfo_v2) X(cuMemHostAlloc) X(cuMemHostGetFlags) X(                           \
                                          cuMemHostRegister_v2) X(cuMemHostUnregister) X(cuMemcpy)                           \
                                          X(cuMemcpy2DAsync_v2) X(cuMemcpy2D_v2) X(cuMemcpy3D_v2) X(                         \
                                              cuMemcpyAsync) X(cuMemcpyDtoDAsync_v2) X(cuMemcpyDtoD_v2)                      \
                                              X(cuMemcpyDtoHAsync_v2) X(cuMemcpyDtoH_v2) X(                                  \
                                                  cuMemcpyHtoDAsync_v2) X(cuMemcpyHtoD_v2) X(cuMemsetD16Async)               \
                                                  X(cuMemsetD16_v2) X(cuMemsetD2D16_v2) X(                                   \
                                                      cuMemsetD2D32Async) X(cuMemsetD2D32_v2)                                \
                                                      X(cuMemsetD2D8_v2) X(cuMemsetD32Async) X(                              \
                                                          cuMemsetD32_v2) X(cuMemsetD8Async) X(cuMemsetD8_v2)                \
                                                          X(cuModuleGetFunction) X(cuModuleGetGlobal_v2) X(                  \
                                                              cuModuleGetLoadingMode) X(cuModuleLoad) X(cuModuleLoadData)    \
                                                              X(cuModuleLoadDataEx) X(                                       \
                                                                  cuModuleUnload) X(cuOccupancyAvailableDynamicSMemPerBlock) \
                                                                  X(cuOccupancyMaxActiveBlocksPerMultiprocessor) X(          \
                                                                      cuOccupancyMaxPotentialBlockSize)                      \
                                                                      X(cuPointerGetAttribute) X(                            \
                                                                          cuPointerGetAttributes)                            \
                                                                          X(cuStreamAddCallback) X(                          \
                                                                              cuStreamCreate) X(cuStreamCreateWithPriority)  \
                                                                              X(cuStreamDestroy_v2) X(                       \
                                                                                  cuStreamGetCtx) X(cuStreamGetFlags)        \
                                                                                  X(cuStreamGetPriority) X(                  \
                                                                                      cuStreamIsCapturing)                   \
                                                                                      X(cuStreamQuery)                       \
                                                                                          X(cuStreamSynchronize)             \
                                                                                              X(cuStreamWaitEvent)
