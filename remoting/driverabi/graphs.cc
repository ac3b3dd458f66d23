#include "driverabi/graphs.h"

#include <algorithm>
#include <functional>

namespace headrace::driverabi {
namespace {

// Handles are numbers that are never reused and point nowhere.
constexpr std::uint64_t kGraph = std::uint64_t{0x29} << 40;
constexpr std::uint64_t kNode = std::uint64_t{0x2b} << 40;

template <typename Handle>
Handle to_handle(std::uint64_t number) {
  return reinterpret_cast<Handle>(number);
}
std::uint64_t number_of(const void* handle) { return reinterpret_cast<std::uint64_t>(handle); }

// The driver's way to hand out lists: with no array the count alone, else as many as fit; what is
// left of the array is nulled and the count says how many there are.
template <typename Write>
CUresult give(std::size_t have, std::size_t* count, bool wanted, const Write& write) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (wanted) {
    for (std::size_t i = 0; i < *count; ++i) write(i, i < have);
  }
  *count = wanted ? std::min(have, *count) : have;
  return CUDA_SUCCESS;
}

bool is_kernel_attribute(CUlaunchAttributeID id) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return true;
    default:
      return false;
  }
}

// With addresses of parameters in its own block.
KernelNode copy_of(const KernelNode& from) {
  KernelNode to = from;
  for (std::size_t i = 0; i < to.addresses.size(); ++i) {
    const std::uint8_t* there = static_cast<const std::uint8_t*>(from.addresses[i]);
    to.addresses[i] = to.params.data() + (there - from.params.data());
  }
  return to;
}

}  // namespace

void keep_attributes(const Payload& before, Payload& after) {
  const KernelNode* from = std::get_if<KernelNode>(&before);
  KernelNode* to = std::get_if<KernelNode>(&after);
  if (from != nullptr && to != nullptr && to->attributes.empty()) to->attributes = from->attributes;
}

CUgraphNodeType type_of(const Payload& payload) {
  constexpr CUgraphNodeType kTypes[] = {
      CU_GRAPH_NODE_TYPE_EMPTY,      CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMCPY,
      CU_GRAPH_NODE_TYPE_MEMSET,     CU_GRAPH_NODE_TYPE_HOST,   CU_GRAPH_NODE_TYPE_EVENT_RECORD,
      CU_GRAPH_NODE_TYPE_WAIT_EVENT, CU_GRAPH_NODE_TYPE_GRAPH,  CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
  return kTypes[payload.index()];
}

// ---------------------------------------------------------------- with the mutex held

std::shared_ptr<Graph> Graphs::make_graph() {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  graph->handle = kGraph | (next_++ << 4);
  graphs_[graph->handle] = graph;
  return graph;
}

Graph* Graphs::find_graph(CUgraph graph) {
  auto found = graphs_.find(number_of(graph));
  return found == graphs_.end() ? nullptr : found->second.get();
}

Node* Graphs::find_node(CUgraphNode node) {
  auto found = nodes_.find(number_of(node));
  return found == nodes_.end() ? nullptr : found->second;
}

Node* Graphs::add_node(Graph& graph, std::shared_ptr<const Payload> payload,
                       std::vector<Node*> after) {
  std::unique_ptr<Node> node = std::make_unique<Node>();
  node->handle = kNode | (next_++ << 4);
  node->graph = &graph;
  node->payload = std::move(payload);
  node->after = std::move(after);
  Node* out = node.get();
  nodes_[node->handle] = out;
  graph.nodes.push_back(std::move(node));
  return out;
}

CUresult Graphs::read_nodes(const Graph& graph, const CUgraphNode* handles, std::size_t count,
                            std::vector<Node*>* out) {
  if (count != 0 && handles == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    Node* node = find_node(handles[i]);
    if (node == nullptr || node->graph != &graph) return CUDA_ERROR_INVALID_VALUE;
    if (std::find(out->begin(), out->end(), node) != out->end()) return CUDA_ERROR_INVALID_VALUE;
    out->push_back(node);
  }
  return CUDA_SUCCESS;
}

std::shared_ptr<const Payload> Graphs::copy_payload(const std::shared_ptr<const Payload>& from) {
  if (const ChildNode* child = std::get_if<ChildNode>(from.get())) {
    std::shared_ptr<Graph> inner = copy_graph(*child->graph);
    inner->embedded = true;
    return std::make_shared<const Payload>(ChildNode{inner});
  }
  return from;  // never changed in place
}

std::shared_ptr<Graph> Graphs::copy_graph(const Graph& from) {
  std::shared_ptr<Graph> copy = make_graph();
  copy->origin = from.handle;
  copy->objects = from.objects;
  for (const auto& [object, count] : from.objects) objects_[object].references += count;
  std::unordered_map<const Node*, Node*> twins;
  for (const std::unique_ptr<Node>& node : from.nodes) {
    Node* twin = add_node(*copy, copy_payload(node->payload), {});
    twin->origin = node->handle;
    twins[node.get()] = twin;
  }
  for (const std::unique_ptr<Node>& node : from.nodes) {
    for (const Node* before : node->after) twins[node.get()]->after.push_back(twins[before]);
  }
  return copy;
}

void Graphs::forget(Graph& graph) {
  for (const std::unique_ptr<Node>& node : graph.nodes) {
    nodes_.erase(node->handle);
    if (const ChildNode* child = std::get_if<ChildNode>(node->payload.get())) forget(*child->graph);
  }
  for (const auto& [object, count] : graph.objects) drop_references(object, count);
  graphs_.erase(graph.handle);  // last: it may hold the only reference
}

// ---------------------------------------------------------------- graphs

CUresult Graphs::create(CUgraph* out, unsigned flags) {
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> guard(mutex_);
  *out = to_handle<CUgraph>(make_graph()->handle);
  return CUDA_SUCCESS;
}

CUresult Graphs::destroy(CUgraph handle) {
  {
    std::lock_guard<std::mutex> guard(mutex_);
    Graph* graph = find_graph(handle);
    if (graph == nullptr || graph->embedded || graph->capturing) return CUDA_ERROR_INVALID_VALUE;
    forget(*graph);
  }
  end_objects();
  return CUDA_SUCCESS;
}

CUresult Graphs::clone(CUgraph* out, CUgraph handle) {
  std::lock_guard<std::mutex> guard(mutex_);
  Graph* graph = find_graph(handle);
  if (out == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = to_handle<CUgraph>(copy_graph(*graph)->handle);
  return CUDA_SUCCESS;
}

CUresult Graphs::find_in_clone(CUgraphNode* out, CUgraphNode node, CUgraph handle) {
  std::lock_guard<std::mutex> guard(mutex_);
  Graph* graph = find_graph(handle);
  if (out == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const std::unique_ptr<Node>& one : graph->nodes) {
    if (one->origin == 0 || one->origin != number_of(node)) continue;
    *out = to_handle<CUgraphNode>(one->handle);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult Graphs::add(CUgraphNode* out, CUgraph handle, const CUgraphNode* after, std::size_t count,
                     Payload payload) {
  std::lock_guard<std::mutex> guard(mutex_);
  Graph* graph = find_graph(handle);
  if (out == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Node*> before;
  if (CUresult bad = read_nodes(*graph, after, count, &before)) return bad;
  Node* node =
      add_node(*graph, std::make_shared<const Payload>(std::move(payload)), std::move(before));
  *out = to_handle<CUgraphNode>(node->handle);
  return CUDA_SUCCESS;
}

CUresult Graphs::add_child(CUgraphNode* out, CUgraph handle, const CUgraphNode* after,
                           std::size_t count, CUgraph child) {
  std::shared_ptr<Graph> inner;
  {
    std::lock_guard<std::mutex> guard(mutex_);
    Graph* graph = find_graph(child);
    if (graph == nullptr || graph == find_graph(handle)) return CUDA_ERROR_INVALID_VALUE;
    inner = copy_graph(*graph);
    inner->embedded = true;
  }
  CUresult result = add(out, handle, after, count, ChildNode{inner});
  if (result != CUDA_SUCCESS) {
    std::lock_guard<std::mutex> guard(mutex_);
    forget(*inner);
  }
  return result;
}

CUresult Graphs::destroy_node(CUgraphNode handle) {
  std::lock_guard<std::mutex> guard(mutex_);
  Node* node = find_node(handle);
  if (node == nullptr || node->graph->capturing) return CUDA_ERROR_INVALID_VALUE;
  Graph& graph = *node->graph;
  for (const std::unique_ptr<Node>& one : graph.nodes) std::erase(one->after, node);
  for (auto& [event, captured] : events_) std::erase(captured.after, node);
  if (const ChildNode* child = std::get_if<ChildNode>(node->payload.get())) forget(*child->graph);
  nodes_.erase(node->handle);
  std::erase_if(graph.nodes, [&](const std::unique_ptr<Node>& one) { return one.get() == node; });
  return CUDA_SUCCESS;
}

// ---------------------------------------------------------------- what they look like

CUresult Graphs::nodes(CUgraph handle, CUgraphNode* out, std::size_t* count, bool roots_only) {
  std::lock_guard<std::mutex> guard(mutex_);
  Graph* graph = find_graph(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> found;
  for (const std::unique_ptr<Node>& node : graph->nodes) {
    if (!roots_only || node->after.empty()) found.push_back(to_handle<CUgraphNode>(node->handle));
  }
  return give(found.size(), count, out != nullptr,
              [&](std::size_t i, bool there) { out[i] = there ? found[i] : nullptr; });
}

CUresult Graphs::edges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                       std::size_t* count) {
  std::lock_guard<std::mutex> guard(mutex_);
  Graph* graph = find_graph(handle);
  if (graph == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::pair<CUgraphNode, CUgraphNode>> found;
  for (const std::unique_ptr<Node>& node : graph->nodes) {
    for (const Node* before : node->after) {
      found.emplace_back(to_handle<CUgraphNode>(before->handle),
                         to_handle<CUgraphNode>(node->handle));
    }
  }
  return give(found.size(), count, from != nullptr, [&](std::size_t i, bool there) {
    from[i] = there ? found[i].first : nullptr;
    to[i] = there ? found[i].second : nullptr;
    if (data != nullptr) data[i] = {};
  });
}

CUresult Graphs::dependencies(CUgraphNode handle, CUgraphNode* out, CUgraphEdgeData* data,
                              std::size_t* count, bool dependents) {
  std::lock_guard<std::mutex> guard(mutex_);
  Node* node = find_node(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Node*> found;
  if (!dependents) {
    found = node->after;
  } else {
    for (const std::unique_ptr<Node>& one : node->graph->nodes) {
      if (std::find(one->after.begin(), one->after.end(), node) != one->after.end()) {
        found.push_back(one.get());
      }
    }
  }
  return give(found.size(), count, out != nullptr, [&](std::size_t i, bool there) {
    out[i] = there ? to_handle<CUgraphNode>(found[i]->handle) : nullptr;
    if (data != nullptr) data[i] = {};
  });
}

CUresult Graphs::connect(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                         std::size_t count, bool remove) {
  std::lock_guard<std::mutex> guard(mutex_);
  Graph* graph = find_graph(handle);
  if (graph == nullptr || (count != 0 && (from == nullptr || to == nullptr))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // All or none: checked before anything is changed.
  for (std::size_t i = 0; i < count; ++i) {
    Node* first = find_node(from[i]);
    Node* second = find_node(to[i]);
    if (first == nullptr || second == nullptr || first == second || first->graph != graph ||
        second->graph != graph) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    bool there =
        std::find(second->after.begin(), second->after.end(), first) != second->after.end();
    if (there != remove) return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < count; ++i) {
    Node* first = find_node(from[i]);
    std::vector<Node*>& after = find_node(to[i])->after;
    std::erase(after, first);
    if (!remove) after.push_back(first);
  }
  return CUDA_SUCCESS;
}

CUresult Graphs::node_type(CUgraphNode handle, CUgraphNodeType* type) {
  std::lock_guard<std::mutex> guard(mutex_);
  Node* node = find_node(handle);
  if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = type_of(*node->payload);
  return CUDA_SUCCESS;
}

CUresult Graphs::payload(CUgraphNode handle, CUgraphNodeType type,
                         std::shared_ptr<const Payload>* out) {
  std::lock_guard<std::mutex> guard(mutex_);
  Node* node = find_node(handle);
  if (node == nullptr || type_of(*node->payload) != type) return CUDA_ERROR_INVALID_VALUE;
  *out = node->payload;
  return CUDA_SUCCESS;
}

CUresult Graphs::set_payload(CUgraphNode handle, Payload payload) {
  std::lock_guard<std::mutex> guard(mutex_);
  Node* node = find_node(handle);
  if (node == nullptr || node->payload->index() != payload.index()) return CUDA_ERROR_INVALID_VALUE;
  keep_attributes(*node->payload, payload);
  node->payload = std::make_shared<const Payload>(std::move(payload));
  return CUDA_SUCCESS;
}

CUresult Graphs::kernel_attribute(CUgraphNode handle, CUlaunchAttributeID id,
                                  CUlaunchAttributeValue* out) {
  std::lock_guard<std::mutex> guard(mutex_);
  Node* node = find_node(handle);
  const KernelNode* kernel = node == nullptr ? nullptr : std::get_if<KernelNode>(&*node->payload);
  if (kernel == nullptr || out == nullptr || !is_kernel_attribute(id)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = {};
  for (const CUlaunchAttribute& one : kernel->attributes) {
    if (one.id == id) *out = one.value;
  }
  return CUDA_SUCCESS;
}

CUresult Graphs::set_kernel_attribute(CUgraphNode handle, CUlaunchAttributeID id,
                                      const CUlaunchAttributeValue* value) {
  std::lock_guard<std::mutex> guard(mutex_);
  Node* node = find_node(handle);
  const KernelNode* kernel = node == nullptr ? nullptr : std::get_if<KernelNode>(&*node->payload);
  if (kernel == nullptr || value == nullptr || !is_kernel_attribute(id)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  KernelNode changed = copy_of(*kernel);
  std::erase_if(changed.attributes, [&](const CUlaunchAttribute& one) { return one.id == id; });
  CUlaunchAttribute& last = changed.attributes.emplace_back();
  last = {};
  last.id = id;
  last.value = *value;
  node->payload = std::make_shared<const Payload>(std::move(changed));
  return CUDA_SUCCESS;
}

CUresult Graphs::copy_kernel_attributes(CUgraphNode to, CUgraphNode from) {
  std::lock_guard<std::mutex> guard(mutex_);
  Node* target = find_node(to);
  Node* source = find_node(from);
  if (target == nullptr || source == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const KernelNode* old = std::get_if<KernelNode>(&*target->payload);
  const KernelNode* model = std::get_if<KernelNode>(&*source->payload);
  if (old == nullptr || model == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelNode changed = copy_of(*old);
  changed.attributes = model->attributes;
  target->payload = std::make_shared<const Payload>(std::move(changed));
  return CUDA_SUCCESS;
}

// ---------------------------------------------------------------- graphs as sequences

// In the order of creation as far as dependencies allow. False: they form a circle.
bool Graphs::plan_of(const Graph& graph, Plan* plan) {
  std::unordered_map<const Node*, std::uint32_t> places;
  plan->reserve(graph.nodes.size());
  // Nodes usually come after what they depend on, so that one pass takes all.
  for (bool moved = true; moved && places.size() < graph.nodes.size();) {
    moved = false;
    for (const std::unique_ptr<Node>& node : graph.nodes) {
      if (places.contains(node.get())) continue;
      Step step;
      bool ready = true;
      for (const Node* before : node->after) {
        auto place = places.find(before);
        if (place == places.end()) {
          ready = false;
          break;
        }
        step.after.push_back(place->second);
      }
      if (!ready) continue;
      step.origin = node->handle;
      step.payload = node->payload;
      if (const ChildNode* child = std::get_if<ChildNode>(node->payload.get())) {
        std::shared_ptr<Plan> inner = std::make_shared<Plan>();
        if (!plan_of(*child->graph, inner.get())) return false;
        step.child = std::move(inner);
      }
      std::sort(step.after.begin(), step.after.end());
      places[node.get()] = static_cast<std::uint32_t>(plan->size());
      plan->push_back(std::move(step));
      moved = true;
    }
  }
  return places.size() == graph.nodes.size();
}

std::shared_ptr<Graph> Graphs::graph_of(const Plan& plan) {
  std::shared_ptr<Graph> graph = make_graph();
  for (const Step& step : plan) {
    std::vector<Node*> after;
    for (std::uint32_t place : step.after) after.push_back(graph->nodes[place].get());
    std::shared_ptr<const Payload> payload = step.payload;
    if (step.child != nullptr) {
      std::shared_ptr<Graph> inner = graph_of(*step.child);
      inner->embedded = true;
      payload = std::make_shared<const Payload>(ChildNode{inner});
    } else if (!step.enabled) {
      payload = std::make_shared<const Payload>(EmptyNode{});
    }
    add_node(*graph, std::move(payload), std::move(after));
  }
  return graph;
}

}  // namespace headrace::driverabi
