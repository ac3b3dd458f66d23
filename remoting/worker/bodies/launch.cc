// Launches and what asks about them (apispec/execution.toml, occupancy.toml). Parameter blocks are
// passed on byte for byte.
#include <cstring>
#include <vector>

#include "worker/bodies/bodies.h"

namespace headrace::worker::bodies {
namespace {

// The form of cuLaunchKernel that takes a ready block.
class ParameterBlock {
 public:
  explicit ParameterBlock(std::span<const std::uint8_t> block) : size_(block.size()) {
    extra_[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
    extra_[1] = const_cast<std::uint8_t*>(block.data());
    extra_[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
    extra_[3] = &size_;
    extra_[4] = CU_LAUNCH_PARAM_END;
  }
  void** extra() { return size_ == 0 ? nullptr : extra_; }

 private:
  std::size_t size_;
  void* extra_[5];
};

// Attributes as the driver takes them, with handles looked up. False: one that is not carried.
bool translate(Session& session, const std::vector<calls::LaunchAttribute>& from,
               std::vector<CUlaunchAttribute>& to) {
  for (const calls::LaunchAttribute& one : from) {
    CUlaunchAttribute attribute{};
    static_assert(sizeof attribute.value == sizeof one.value);
    attribute.id = static_cast<CUlaunchAttributeID>(one.id);
    std::memcpy(&attribute.value, one.value.data(), sizeof attribute.value);
    std::uint64_t handle = 0;
    std::memcpy(&handle, one.value.data(), sizeof handle);
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        if (!session.find(HandleKind::event, handle, attribute.value.programmaticEvent.event)) {
          return false;
        }
        break;
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        if (!session.find(HandleKind::event, handle, attribute.value.launchCompletionEvent.event)) {
          return false;
        }
        break;
      default:
        return false;
    }
    to.push_back(attribute);
  }
  return true;
}

template <typename Call>
CUlaunchConfig config_of(const Call& call, CUstream stream,
                         std::vector<CUlaunchAttribute>& attributes) {
  CUlaunchConfig config{};
  config.gridDimX = call.gridDimX;
  config.gridDimY = call.gridDimY;
  config.gridDimZ = call.gridDimZ;
  config.blockDimX = call.blockDimX;
  config.blockDimY = call.blockDimY;
  config.blockDimZ = call.blockDimZ;
  config.sharedMemBytes = call.sharedMemBytes;
  config.hStream = stream;
  config.attrs = attributes.data();
  config.numAttrs = static_cast<unsigned>(attributes.size());
  return config;
}

}  // namespace

CUresult cuLaunchKernel(Session& session, const calls::CuLaunchKernel& call) {
  CUfunction function = nullptr;
  CUstream stream = nullptr;
  if (!session.find(HandleKind::function, call.f, function) ||
      !session.find(HandleKind::stream, call.hStream, stream)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  ParameterBlock block(call.block);
  return session.driver().cuLaunchKernel(function, call.gridDimX, call.gridDimY, call.gridDimZ,
                                         call.blockDimX, call.blockDimY, call.blockDimZ,
                                         call.sharedMemBytes, stream, nullptr, block.extra());
}

CUresult cuLaunchKernelEx(Session& session, const calls::CuLaunchKernelEx& call) {
  CUfunction function = nullptr;
  CUstream stream = nullptr;
  if (!session.find(HandleKind::function, call.f, function) ||
      !session.find(HandleKind::stream, call.hStream, stream)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  std::vector<CUlaunchAttribute> attributes;
  if (!translate(session, call.attributes, attributes)) return CUDA_ERROR_NOT_SUPPORTED;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  const CUlaunchConfig config = config_of(call, stream, attributes);
  ParameterBlock block(call.block);
  return HEADRACE_DRIVER_CALL(session, cuLaunchKernelEx, &config, function, nullptr, block.extra());
}

// The driver's cooperative launch takes no ready block; the attribute says the same.
CUresult cuLaunchCooperativeKernel(Session& session, const calls::CuLaunchCooperativeKernel& call) {
  CUfunction function = nullptr;
  CUstream stream = nullptr;
  if (!session.find(HandleKind::function, call.f, function) ||
      !session.find(HandleKind::stream, call.hStream, stream)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  std::vector<CUlaunchAttribute> attributes(1);
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attributes[0].value.cooperative = 1;
  const CUlaunchConfig config = config_of(call, stream, attributes);
  ParameterBlock block(call.block);
  return HEADRACE_DRIVER_CALL(session, cuLaunchKernelEx, &config, function, nullptr, block.extra());
}

CUresult cuOccupancyMaxActiveClusters(Session& session,
                                      const calls::CuOccupancyMaxActiveClusters& call,
                                      calls::CuOccupancyMaxActiveClustersReply& reply) {
  CUfunction function = nullptr;
  std::vector<CUlaunchAttribute> attributes;
  if (!session.find(HandleKind::function, call.func, function)) return CUDA_ERROR_INVALID_HANDLE;
  if (!translate(session, call.attributes, attributes)) return CUDA_ERROR_NOT_SUPPORTED;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  const CUlaunchConfig config = config_of(call, nullptr, attributes);
  return HEADRACE_DRIVER_CALL(session, cuOccupancyMaxActiveClusters, &reply.numClusters, function,
                              &config);
}

CUresult cuOccupancyMaxPotentialClusterSize(Session& session,
                                            const calls::CuOccupancyMaxPotentialClusterSize& call,
                                            calls::CuOccupancyMaxPotentialClusterSizeReply& reply) {
  CUfunction function = nullptr;
  std::vector<CUlaunchAttribute> attributes;
  if (!session.find(HandleKind::function, call.func, function)) return CUDA_ERROR_INVALID_HANDLE;
  if (!translate(session, call.attributes, attributes)) return CUDA_ERROR_NOT_SUPPORTED;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  const CUlaunchConfig config = config_of(call, nullptr, attributes);
  return HEADRACE_DRIVER_CALL(session, cuOccupancyMaxPotentialClusterSize, &reply.clusterSize,
                              function, &config);
}

}  // namespace headrace::worker::bodies
