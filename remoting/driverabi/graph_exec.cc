// Instantiated graphs: a launch makes the nodes' calls on the stream, in the plan's order.
#include "driverabi/graphs.h"

namespace headrace::driverabi {
namespace {

constexpr std::uint64_t kExec = std::uint64_t{0x2a} << 40;
constexpr unsigned long long kKnownFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

std::uint64_t number_of(const void* handle) { return reinterpret_cast<std::uint64_t>(handle); }

bool can_be_disabled(const Payload& payload) {
  return std::holds_alternative<KernelNode>(payload) ||
         std::holds_alternative<MemcpyNode>(payload) || std::holds_alternative<MemsetNode>(payload);
}

// What an update may not change; nodes are paired by their place.
CUgraphExecUpdateResult compare(const Plan& now, const Plan& wanted, std::uint64_t* at) {
  if (now.size() != wanted.size()) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  for (std::size_t i = 0; i < now.size(); ++i) {
    *at = wanted[i].origin;
    if (now[i].payload->index() != wanted[i].payload->index()) {
      return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    }
    if (now[i].after != wanted[i].after) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (now[i].child == nullptr) continue;
    CUgraphExecUpdateResult inner = compare(*now[i].child, *wanted[i].child, at);
    if (inner != CU_GRAPH_EXEC_UPDATE_SUCCESS) return inner;
  }
  *at = 0;
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

}  // namespace

std::shared_ptr<Exec> Graphs::find_exec(CUgraphExec exec) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto found = execs_.find(number_of(exec));
  return found == execs_.end() ? nullptr : found->second;
}

CUresult Graphs::instantiate(CUgraphExec* out, CUgraph handle, unsigned long long flags) {
  std::lock_guard<std::mutex> guard(mutex_);
  Graph* graph = find_graph(handle);
  if (out == nullptr || graph == nullptr || graph->capturing || (flags & ~kKnownFlags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  std::shared_ptr<Plan> plan = std::make_shared<Plan>();
  if (!plan_of(*graph, plan.get())) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Exec> exec = std::make_shared<Exec>();
  exec->flags = flags;
  exec->plan = std::move(plan);
  hold_objects(*graph, *exec);
  std::uint64_t number = kExec | (next_++ << 4);
  execs_[number] = std::move(exec);
  *out = reinterpret_cast<CUgraphExec>(number);
  return CUDA_SUCCESS;
}

CUresult Graphs::exec_destroy(CUgraphExec handle) {
  std::shared_ptr<Exec> exec = find_exec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  {
    std::lock_guard<std::mutex> guard(mutex_);
    execs_.erase(number_of(handle));
  }
  CUstream last = nullptr;
  bool running = false;
  {
    std::lock_guard<std::mutex> guard(exec->mutex);
    if (exec->finished != nullptr) host_.end_event(exec->finished);
    exec->finished = nullptr;
    last = exec->last_handle;
    running = exec->launched;
  }
  release_objects(exec->objects, running ? &last : nullptr);
  return CUDA_SUCCESS;
}

CUresult Graphs::exec_flags(CUgraphExec handle, cuuint64_t* flags) {
  std::shared_ptr<Exec> exec = find_exec(handle);
  if (exec == nullptr || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

CUresult Graphs::exec_update(CUgraphExec handle, CUgraph graph_handle,
                             CUgraphExecUpdateResultInfo* info) {
  std::shared_ptr<Exec> exec = find_exec(handle);
  if (exec == nullptr || info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *info = {};
  info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
  Plan wanted;
  {
    std::lock_guard<std::mutex> guard(mutex_);
    Graph* graph = find_graph(graph_handle);
    if (graph == nullptr || !plan_of(*graph, &wanted)) return CUDA_ERROR_INVALID_VALUE;
    hold_objects(*graph, *exec);
  }
  std::lock_guard<std::mutex> guard(exec->mutex);
  std::uint64_t at = 0;
  info->result = compare(*exec->plan, wanted, &at);
  info->errorNode = reinterpret_cast<CUgraphNode>(at);
  if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  // Nodes keep the names that they had when the graph was instantiated.
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    wanted[i].origin = (*exec->plan)[i].origin;
    wanted[i].enabled = (*exec->plan)[i].enabled;
  }
  exec->plan = std::make_shared<const Plan>(std::move(wanted));
  return CUDA_SUCCESS;
}

// A launch that is under way goes on with the plan that it began with.
template <typename Change>
CUresult Graphs::change_step(CUgraphExec handle, CUgraphNode node, const Change& change) {
  std::shared_ptr<Exec> exec = find_exec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> guard(exec->mutex);
  std::shared_ptr<Plan> plan = std::make_shared<Plan>(*exec->plan);
  for (Step& step : *plan) {
    if (step.origin != number_of(node)) continue;
    if (!change(step)) return CUDA_ERROR_INVALID_VALUE;
    exec->plan = std::move(plan);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult Graphs::exec_set(CUgraphExec exec, CUgraphNode node, Payload payload) {
  return change_step(exec, node, [&](Step& step) {
    if (step.payload->index() != payload.index()) return false;
    keep_attributes(*step.payload, payload);
    step.payload = std::make_shared<const Payload>(std::move(payload));
    return true;
  });
}

CUresult Graphs::exec_set_child(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  std::shared_ptr<Plan> plan = std::make_shared<Plan>();
  {
    std::lock_guard<std::mutex> guard(mutex_);
    Graph* graph = find_graph(child);
    if (graph == nullptr || !plan_of(*graph, plan.get())) return CUDA_ERROR_INVALID_VALUE;
  }
  return change_step(exec, node, [&](Step& step) {
    std::uint64_t at = 0;
    if (step.child == nullptr || compare(*step.child, *plan, &at) != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
      return false;
    }
    step.child = plan;
    return true;
  });
}

CUresult Graphs::exec_enable(CUgraphExec exec, CUgraphNode node, bool enable) {
  return change_step(exec, node, [&](Step& step) {
    if (!can_be_disabled(*step.payload)) return false;
    step.enabled = enable;
    return true;
  });
}

CUresult Graphs::exec_enabled(CUgraphExec handle, CUgraphNode node, unsigned* enabled) {
  std::shared_ptr<Exec> exec = find_exec(handle);
  if (exec == nullptr || enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> guard(exec->mutex);
  for (const Step& step : *exec->plan) {
    if (step.origin != number_of(node)) continue;
    if (!can_be_disabled(*step.payload)) return CUDA_ERROR_INVALID_VALUE;
    *enabled = step.enabled ? 1 : 0;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult Graphs::upload(CUgraphExec exec, CUstream stream_handle) {
  CaptureStream stream;
  if (CUresult bad = host_.stream(stream_handle, &stream)) return bad;
  return find_exec(exec) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// In a capture a launch becomes a node with the graph as it is now.
Graphs::Verdict Graphs::launch_captured(const Exec& exec, const CaptureStream& stream) {
  std::shared_ptr<Graph> graph;
  {
    std::lock_guard<std::mutex> guard(mutex_);
    if (capture_of(stream.key) == nullptr) return legacy_use(stream);
    graph = graph_of(*exec.plan);
    graph->embedded = true;
  }
  Verdict verdict = work(stream, ChildNode{graph});
  if (!verdict || *verdict != CUDA_SUCCESS) {
    std::lock_guard<std::mutex> guard(mutex_);
    forget(*graph);
  }
  return verdict;
}

CUresult Graphs::launch(CUgraphExec handle, CUstream stream_handle) {
  CaptureStream stream;
  if (CUresult bad = host_.stream(stream_handle, &stream)) return bad;
  std::shared_ptr<Exec> exec = find_exec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<const Plan> plan;
  {
    std::lock_guard<std::mutex> guard(exec->mutex);
    plan = exec->plan;
    if (watching()) {
      if (Verdict verdict = launch_captured(*exec, stream)) return *verdict;
    }
    // Launches of one graph follow each other, on whichever streams.
    if (exec->finished != nullptr && exec->context != stream.context) {
      host_.end_event(exec->finished);
      exec->finished = nullptr;
    }
    if (exec->finished == nullptr) {
      if (CUresult bad = host_.make_event(&exec->finished, CU_EVENT_DISABLE_TIMING)) return bad;
      exec->context = stream.context;
      exec->launched = false;
    }
    if (exec->launched && exec->last_stream != stream.key) {
      if (CUresult bad = host_.wait(stream_handle, exec->finished, 0)) return bad;
    }
  }
  // Functions of the program may run meanwhile, so no lock is held.
  bool host_ran = false;
  CUresult result = replay(*plan, stream_handle, &host_ran);
  std::lock_guard<std::mutex> guard(exec->mutex);
  if (exec->finished != nullptr && result == CUDA_SUCCESS) {
    result = host_.record(exec->finished, stream_handle);
    exec->last_stream = stream.key;
    exec->last_handle = stream_handle;
    exec->launched = true;
  }
  return result;
}

CUresult Graphs::replay(const Plan& plan, CUstream stream, bool* host_ran) {
  for (const Step& step : plan) {
    if (!step.enabled) continue;
    if (CUresult result = replay_step(step, stream, host_ran)) return result;
  }
  return CUDA_SUCCESS;
}

CUresult Graphs::replay_step(const Step& step, CUstream stream, bool* host_ran) {
  const Payload& payload = *step.payload;
  if (step.child != nullptr) return replay(*step.child, stream, host_ran);
  if (const KernelNode* kernel = std::get_if<KernelNode>(&payload)) {
    CUlaunchConfig config{};
    config.gridDimX = kernel->grid[0];
    config.gridDimY = kernel->grid[1];
    config.gridDimZ = kernel->grid[2];
    config.blockDimX = kernel->block[0];
    config.blockDimY = kernel->block[1];
    config.blockDimZ = kernel->block[2];
    config.sharedMemBytes = kernel->shared_bytes;
    config.hStream = stream;
    config.attrs = const_cast<CUlaunchAttribute*>(kernel->attributes.data());
    config.numAttrs = static_cast<unsigned>(kernel->attributes.size());
    std::size_t size = kernel->params.size();
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER,
                     const_cast<std::uint8_t*>(kernel->params.data()), CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &size, CU_LAUNCH_PARAM_END};
    return host_.launch(&config, kernel->function, nullptr, size == 0 ? nullptr : extra);
  }
  if (const MemcpyNode* copy = std::get_if<MemcpyNode>(&payload)) {
    // A copy may take its source at the call, so what writes the source must have ended.
    if (*host_ran) {
      if (CUresult bad = host_.synchronise(stream)) return bad;
      *host_ran = false;
    }
    return host_.copy(&copy->what, stream);
  }
  if (const MemsetNode* set = std::get_if<MemsetNode>(&payload)) {
    const CUDA_MEMSET_NODE_PARAMS& what = set->what;
    switch (what.elementSize) {
      case 1:
        return host_.set8(what.dst, what.pitch, static_cast<unsigned char>(what.value), what.width,
                          what.height, stream);
      case 2:
        return host_.set16(what.dst, what.pitch, static_cast<unsigned short>(what.value),
                           what.width, what.height, stream);
      default:
        return host_.set32(what.dst, what.pitch, what.value, what.width, what.height, stream);
    }
  }
  if (const HostNode* host = std::get_if<HostNode>(&payload)) {
    *host_ran = true;
    return host_.host_function(stream, host->function, host->data);
  }
  if (const EventRecordNode* event = std::get_if<EventRecordNode>(&payload)) {
    return host_.record(event->event, stream);
  }
  if (const EventWaitNode* event = std::get_if<EventWaitNode>(&payload)) {
    return host_.wait(stream, event->event, 0);
  }
  if (const BatchMemOpNode* batch = std::get_if<BatchMemOpNode>(&payload)) {
    return host_.memory_operations(stream, static_cast<unsigned>(batch->operations.size()),
                                   batch->operations.data(), 0);
  }
  return CUDA_SUCCESS;
}

}  // namespace headrace::driverabi
