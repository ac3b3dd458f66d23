// Launches: parameters, the rules that are checked at the call, and the way into the executor.
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "remoting/softgpu/device/condition.h"
#include "remoting/softgpu/device/kernel_times.h"
#include "remoting/softgpu/device/log.h"
#include "remoting/softgpu/driver/capture.h"
#include "remoting/softgpu/driver/launch.h"

namespace headrace::softgpu {
namespace {

struct Request {
  Dim3 grid, block;
  unsigned dynamic_shared = 0;
  bool cooperative = false;
};

CUresult result_of(LaunchStatus status) {
  switch (status) {
    case LaunchStatus::ok:
      return CUDA_SUCCESS;
    case LaunchStatus::illegal_address:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case LaunchStatus::misaligned_address:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case LaunchStatus::illegal_instruction:
      return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case LaunchStatus::trap:
      return CUDA_ERROR_LAUNCH_FAILED;
    case LaunchStatus::assertion:
      return CUDA_ERROR_ASSERT;
    case LaunchStatus::stack_overflow:
      return CUDA_ERROR_HARDWARE_STACK_ERROR;
    case LaunchStatus::timeout:
    case LaunchStatus::deadlock:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    case LaunchStatus::cancelled:
      return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    case LaunchStatus::out_of_resources:
      return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    case LaunchStatus::invalid:
      break;
  }
  return CUDA_ERROR_LAUNCH_FAILED;
}

// What CUDA rejects at the call.
CUresult check(const Device& device, const Function& function, const sg_kernel_desc& kernel,
               const Request& request) {
  const unsigned grid[3] = {request.grid.x, request.grid.y, request.grid.z};
  const unsigned block[3] = {request.block.x, request.block.y, request.block.z};
  for (int i = 0; i < 3; ++i) {
    if (grid[i] == 0 || grid[i] > kMaxGrid[i]) return CUDA_ERROR_INVALID_VALUE;
    if (block[i] == 0 || block[i] > kMaxBlock[i]) return CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint64_t threads = request.block.count();
  if (threads > kThreadsPerBlock) return CUDA_ERROR_INVALID_VALUE;
  if (threads > static_cast<std::uint64_t>(max_threads(kernel))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (kernel.req_ntid[0] != 0) {
    for (int i = 0; i < 3; ++i) {
      if (block[i] != std::max(1u, kernel.req_ntid[i])) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (request.dynamic_shared >
      static_cast<unsigned>(max_dynamic_shared(kernel, function.settings()))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (request.cooperative) {
    int blocks = active_blocks(device, kernel, function.settings(), static_cast<int>(threads),
                               request.dynamic_shared);
    std::uint64_t most = static_cast<std::uint64_t>(blocks) * kMultiprocessors;
    most =
        std::min<std::uint64_t>(most, max_cooperative_blocks(static_cast<std::uint32_t>(threads)));
    if (request.grid.count() > most) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return CUDA_SUCCESS;
}

// The parameter block, from pointers to each value or from a ready block.
CUresult gather(const KernelInfo& info, void** params, void** extra,
                std::vector<std::uint8_t>* block) {
  block->assign(info.param_bytes, 0);
  if (extra != nullptr) {
    if (params != nullptr) return CUDA_ERROR_INVALID_VALUE;
    const void* data = nullptr;
    const std::size_t* size = nullptr;
    for (void** at = extra; *at != CU_LAUNCH_PARAM_END; at += 2) {
      if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER) {
        data = at[1];
      } else if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE) {
        size = static_cast<const std::size_t*>(at[1]);
      } else {
        return CUDA_ERROR_INVALID_VALUE;
      }
    }
    std::size_t needed = 0;
    if (!info.params.empty()) needed = info.params.back().offset + info.params.back().size;
    if (needed == 0) return CUDA_SUCCESS;
    if (data == nullptr || size == nullptr || *size < needed) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(block->data(), data, std::min(*size, block->size()));
    return CUDA_SUCCESS;
  }
  if (info.params.empty()) return CUDA_SUCCESS;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < info.params.size(); ++i) {
    const ParamInfo& param = info.params[i];
    if (params[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (std::size_t{param.offset} + param.size > block->size()) return CUDA_ERROR_UNKNOWN;
    std::memcpy(block->data() + param.offset, params[i], param.size);
  }
  return CUDA_SUCCESS;
}

// Until a hung kernel is told to end: by its context's end, the time limit, a failure of the
// device, or whoever had it hang.
LaunchResult hang(Context& context, const Launch& launch, std::uint32_t released) {
  constexpr std::chrono::milliseconds kLook{5};
  const std::chrono::milliseconds limit = launch_time_limit();
  const auto begun = std::chrono::steady_clock::now();
  while (context.condition().released() == released && context.sticky() == CUDA_SUCCESS) {
    if (launch.cancel->cancelled()) return {.status = LaunchStatus::cancelled};
    if (limit.count() != 0 && std::chrono::steady_clock::now() - begun > limit) {
      return {.status = LaunchStatus::timeout};
    }
    std::this_thread::sleep_for(kLook);
  }
  return {};
}

// Until the kernel has had so much of the device. What it shares it with changes meanwhile.
void model(Condition& condition, const CancelToken& cancel, std::uint64_t begun_at,
           std::uint64_t nanoseconds) {
  constexpr std::uint64_t kLook = 1'000'000;
  for (;;) {
    const std::uint64_t had = condition.progress_ns() - begun_at;
    if (had >= nanoseconds || cancel.cancelled()) return;
    const std::uint64_t left = (nanoseconds - had) * condition.parts();
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(left, kLook)));
  }
}

// Runs the launch, and accounts for the time that it takes of the device.
LaunchResult occupy(Context& context, const std::string& name, const Launch& launch) {
  Condition& condition = context.condition();
  const std::uint64_t modelled =
      static_cast<std::uint64_t>(modelled_time(name, launch.grid.count()).count());
  if (!condition.shared() && modelled == 0) return run(launch);
  const std::uint32_t released = condition.released();
  const bool hangs = condition.hangs_launch();
  condition.begin_kernel();
  const std::uint64_t begun_at = condition.progress_ns();
  LaunchResult result = hangs ? hang(context, launch, released) : LaunchResult{};
  const bool runs = result.ok() && context.sticky() == CUDA_SUCCESS;
  if (runs) result = run(launch);
  if (runs && result.ok() && modelled != 0) {
    model(condition, *launch.cancel, begun_at, modelled);
  }
  condition.end_kernel();
  return result;
}

// Frames of translated code are up to four times as large as a GPU's; a program that sets no limit
// gets more than the 1 KiB a GPU would give.
std::uint32_t lane_stack(Context& context) {
  std::lock_guard<std::mutex> guard(context.settings_mutex);
  const std::size_t limit = std::min<std::size_t>(context.limits[CU_LIMIT_STACK_SIZE], 512 << 10);
  return static_cast<std::uint32_t>(std::max<std::size_t>(4 * limit, 64 << 10) + 15) & ~15u;
}

// On a thread of the engine.
CUresult execute(Runtime& runtime, Context& context, const Function& function,
                 const Request& request, const std::vector<std::uint8_t>& params) {
  Device& device = context.device();
  DeviceMemory* memory = device.memory();
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  Launch launch;
  function.code().improve(runtime);
  launch.kernel = function.code().compiled();
  if (is_skipped(*launch.kernel)) return CUDA_SUCCESS;
  launch.grid = request.grid;
  launch.block = request.block;
  launch.dynamic_shared = request.dynamic_shared;
  launch.params = params.data();
  launch.params_bytes = params.size();
  launch.globals = reinterpret_cast<std::uint8_t*>(function.globals());
  launch.arena = {memory->window_low(), memory->window_high()};
  runtime.host_memory().window(&launch.pinned.lo, &launch.pinned.hi);
  std::vector<Window> registered;
  for (const HostMemory::Range& range : runtime.host_memory().registered()) {
    registered.push_back({range.low, range.high});
  }
  launch.registered = registered;
  launch.cooperative = request.cooperative;
  static std::atomic<std::uint64_t> grid_number{1};
  launch.grid_id = grid_number.fetch_add(1);
  launch.cancel = context.cancel_token();
  launch.output = &context.output();
  if ((launch.kernel->flags & SG_KERNEL_USES_HEAP) != 0) launch.heap = context.heap();
  if ((launch.kernel->flags & SG_KERNEL_USES_STACK) != 0) launch.stack_bytes = lane_stack(context);
  constexpr std::uint64_t kWorkspace = 32;
  if (request.cooperative) {
    launch.grid_workspace = memory->allocate(kWorkspace, context.handle, 0, true);
    if (launch.grid_workspace == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    std::memset(reinterpret_cast<void*>(launch.grid_workspace), 0, kWorkspace);
  }
  const LaunchResult result = occupy(context, function.code().name(), launch);
  if (launch.grid_workspace != 0) memory->free(launch.grid_workspace, true);
  if (!result.ok()) {
    log("kernel " + function.code().name() + ": " + describe(result.status) + ", address " +
        std::to_string(result.address) + ", block " + std::to_string(result.block.x) + "," +
        std::to_string(result.block.y) + "," + std::to_string(result.block.z));
  }
  return result_of(result.status);
}

driverabi::KernelNode make_node(CUfunction handle, const Context& context, const KernelInfo& info,
                                const Request& request,
                                std::span<const CUlaunchAttribute> attributes,
                                std::vector<std::uint8_t> block) {
  driverabi::KernelNode node;
  node.function = handle;
  node.context = to_handle<CUcontext>(context.handle);
  const unsigned grid[3] = {request.grid.x, request.grid.y, request.grid.z};
  const unsigned threads[3] = {request.block.x, request.block.y, request.block.z};
  std::copy(grid, grid + 3, node.grid);
  std::copy(threads, threads + 3, node.block);
  node.shared_bytes = request.dynamic_shared;
  node.attributes.assign(attributes.begin(), attributes.end());
  node.params = std::move(block);
  for (const ParamInfo& param : info.params) {
    node.addresses.push_back(node.params.data() + param.offset);
  }
  return node;
}

CUresult launch(CUfunction handle, CUstream stream_handle, const Request& request, void** params,
                void** extra, std::span<const CUlaunchAttribute> attributes = {}) {
  return with_stream(stream_handle,
                     [&](Runtime& runtime, ContextPtr& context, StreamPtr& stream) -> CUresult {
                       if (handle == nullptr) return CUDA_ERROR_INVALID_HANDLE;
                       FunctionPtr function;
                       if (CUresult result = find_function(runtime, handle, &function))
                         return result;
                       if (function->context() != context) return CUDA_ERROR_INVALID_HANDLE;
                       const sg_kernel_desc& kernel = *function->code().compiled();
                       if (CUresult result = check(context->device(), *function, kernel, request))
                         return result;
                       std::vector<std::uint8_t> block;
                       if (CUresult result = gather(function->code().info(), params, extra, &block))
                         return result;
                       if (Graphs::Verdict captured = capture_work(*context, *stream, [&] {
                             return make_node(handle, *context, function->code().info(), request,
                                              attributes, block);
                           })) {
                         return *captured;
                       }
                       // The context outlives its operations: they hold it (Context::submit).
                       const std::uint64_t held = block.size();
                       context->submit(
                           stream,
                           [&runtime, raw = context.get(), function = std::move(function), request,
                            block = std::move(block)] {
                             return execute(runtime, *raw, *function, request, block);
                           },
                           false, nullptr, held);
                       return CUDA_SUCCESS;
                     });
}

}  // namespace

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared, CUstream stream, void** params,
                        void** extra) {
  return launch(function, stream,
                {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, false}, params,
                extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared, CUstream stream,
                                   void** params) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  return launch(function, stream,
                {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, true}, params,
                nullptr, {&attribute, 1});
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** params,
                          void** extra) {
  if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Request request{{config->gridDimX, config->gridDimY, config->gridDimZ},
                  {config->blockDimX, config->blockDimY, config->blockDimZ},
                  config->sharedMemBytes,
                  false};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        request.cooperative = attribute.value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        // A cluster of one block is what every launch is.
        if (attribute.value.clusterDim.x > 1 || attribute.value.clusterDim.y > 1 ||
            attribute.value.clusterDim.z > 1) {
          return CUDA_ERROR_NOT_SUPPORTED;
        }
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        return CUDA_ERROR_NOT_SUPPORTED;
      default:  // hints: caches, priority, overlap with the launch before
        if (attribute.id < 0) return CUDA_ERROR_INVALID_VALUE;
        break;
    }
  }
  return launch(function, config->hStream, request, params, extra,
                {config->attrs, config->numAttrs});
}

CUresult read_kernel_node(const CUDA_KERNEL_NODE_PARAMS_v2& params, driverabi::KernelNode* node) {
  return with_context([&](Runtime& runtime, ContextPtr& context) -> CUresult {
    CUfunction handle =
        params.func != nullptr ? params.func : reinterpret_cast<CUfunction>(params.kern);
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    FunctionPtr function;
    if (CUresult result = find_function(runtime, handle, &function)) return result;
    const Request request{{params.gridDimX, params.gridDimY, params.gridDimZ},
                          {params.blockDimX, params.blockDimY, params.blockDimZ},
                          params.sharedMemBytes,
                          false};
    const sg_kernel_desc& kernel = *function->code().compiled();
    if (CUresult result = check(context->device(), *function, kernel, request)) return result;
    const KernelInfo& info = function->code().info();
    std::vector<std::uint8_t> block;
    if (CUresult result = gather(info, params.kernelParams, params.extra, &block)) return result;
    *node = make_node(handle, *context, info, request, {}, std::move(block));
    return CUDA_SUCCESS;
  });
}

}  // namespace headrace::softgpu
