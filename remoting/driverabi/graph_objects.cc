// User objects, which graphs and their instances keep alive, and pictures of graphs.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "driverabi/graphs.h"

namespace headrace::driverabi {
namespace {

constexpr std::uint64_t kObject = std::uint64_t{0x32} << 40;

std::uint64_t number_of(const void* handle) { return reinterpret_cast<std::uint64_t>(handle); }

const char* kind_name(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return "KERNEL";
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return "MEMCPY";
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return "MEMSET";
    case CU_GRAPH_NODE_TYPE_HOST:
      return "HOST";
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return "GRAPH";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "EVENT_WAIT";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "EVENT_RECORD";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return "BATCH_MEM_OP";
    default:
      return "EMPTY";
  }
}

std::string hex(std::uint64_t number) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(number));
  return text;
}

// What the picture says about a node beyond its kind.
std::string details(const Payload& payload, unsigned flags) {
  const bool all = (flags & CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE) != 0;
  const auto wanted = [&](unsigned flag) { return all || (flags & flag) != 0; };
  std::string out;
  if (const KernelNode* kernel = std::get_if<KernelNode>(&payload)) {
    if (!wanted(CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS)) return out;
    out += "\\nfunc " + hex(number_of(kernel->function)) + "\\ngrid";
    for (unsigned size : kernel->grid) out += " " + std::to_string(size);
    out += "\\nblock";
    for (unsigned size : kernel->block) out += " " + std::to_string(size);
    out += "\\nshared " + std::to_string(kernel->shared_bytes);
  } else if (const MemcpyNode* copy = std::get_if<MemcpyNode>(&payload)) {
    if (!wanted(CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS)) return out;
    out += "\\n" + std::to_string(copy->what.WidthInBytes) + " x " +
           std::to_string(copy->what.Height) + " x " + std::to_string(copy->what.Depth) + " bytes";
  } else if (const MemsetNode* set = std::get_if<MemsetNode>(&payload)) {
    if (!wanted(CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS)) return out;
    out += "\\ndst " + hex(set->what.dst) + "\\nvalue " + std::to_string(set->what.value);
  }
  return out;
}

}  // namespace

// With the mutex held. False: there is no such object, or it has fewer references.
bool Graphs::drop_references(std::uint64_t handle, std::uint64_t count) {
  auto found = objects_.find(handle);
  if (found == objects_.end() || found->second.references < count) return false;
  found->second.references -= count;
  if (found->second.references != 0) return true;
  ended_objects_.push_back(found->second);
  objects_.erase(found);
  return true;
}

void Graphs::end_objects() {
  std::vector<UserObject> ended;
  {
    std::lock_guard<std::mutex> guard(mutex_);
    ended.swap(ended_objects_);
  }
  for (const UserObject& object : ended) object.destroy(object.data);
}

CUresult Graphs::object_create(CUuserObject* out, void* data, CUhostFn destroy, unsigned references,
                               unsigned flags) {
  // Zero references would be an object that nobody can end.
  if (out == nullptr || destroy == nullptr || references == 0 || references > INT32_MAX ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::lock_guard<std::mutex> guard(mutex_);
  const std::uint64_t handle = kObject | (next_++ << 4);
  objects_[handle] = {destroy, data, references};
  *out = reinterpret_cast<CUuserObject>(handle);
  return CUDA_SUCCESS;
}

CUresult Graphs::object_retain(CUuserObject object, unsigned count) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto found = objects_.find(number_of(object));
  if (found == objects_.end() || count == 0 || count > INT32_MAX) return CUDA_ERROR_INVALID_VALUE;
  found->second.references += count;
  return CUDA_SUCCESS;
}

CUresult Graphs::object_release(CUuserObject object, unsigned count) {
  {
    std::lock_guard<std::mutex> guard(mutex_);
    if (count == 0 || !drop_references(number_of(object), count)) return CUDA_ERROR_INVALID_VALUE;
  }
  end_objects();
  return CUDA_SUCCESS;
}

CUresult Graphs::graph_retain(CUgraph handle, CUuserObject object, unsigned count, unsigned flags) {
  std::lock_guard<std::mutex> guard(mutex_);
  Graph* graph = find_graph(handle);
  auto found = objects_.find(number_of(object));
  if (graph == nullptr || found == objects_.end() || count == 0 || count > INT32_MAX ||
      (flags & ~static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) {
    found->second.references += count;
  } else if (count > found->second.references) {
    return CUDA_ERROR_INVALID_VALUE;  // the caller cannot hold so many
  }
  graph->objects[number_of(object)] += count;
  return CUDA_SUCCESS;
}

CUresult Graphs::graph_release(CUgraph handle, CUuserObject object, unsigned count) {
  {
    std::lock_guard<std::mutex> guard(mutex_);
    Graph* graph = find_graph(handle);
    if (graph == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    auto held = graph->objects.find(number_of(object));
    if (held == graph->objects.end() || held->second < count) return CUDA_ERROR_INVALID_VALUE;
    held->second -= count;
    if (held->second == 0) graph->objects.erase(held);
    drop_references(number_of(object), count);
  }
  end_objects();
  return CUDA_SUCCESS;
}

// With the mutex held: one reference to each object of the graph and of graphs inside it.
void Graphs::hold_objects(const Graph& graph, Exec& exec) {
  for (const auto& [object, count] : graph.objects) {
    if (std::find(exec.objects.begin(), exec.objects.end(), object) != exec.objects.end()) continue;
    exec.objects.push_back(object);
    ++objects_[object].references;
  }
  for (const std::unique_ptr<Node>& node : graph.nodes) {
    if (const ChildNode* child = std::get_if<ChildNode>(node->payload.get())) {
      hold_objects(*child->graph, exec);
    }
  }
}

void Graphs::release_objects(const std::vector<std::uint64_t>& objects, const CUstream* after) {
  if (objects.empty()) return;
  struct Release {
    Graphs* graphs;
    std::vector<std::uint64_t> objects;
  };
  const CUhostFn run = [](void* data) {
    const std::unique_ptr<Release> release(static_cast<Release*>(data));
    {
      std::lock_guard<std::mutex> guard(release->graphs->mutex_);
      for (std::uint64_t object : release->objects) release->graphs->drop_references(object, 1);
    }
    release->graphs->end_objects();
  };
  Release* release = new Release{this, objects};
  // The last launch may still use them. While anything is captured the stream may be, too: then the
  // program has to see to that itself, as it has to where the stream is gone.
  const bool in_order =
      after != nullptr && !watching() && host_.host_function(*after, run, release) == CUDA_SUCCESS;
  if (!in_order) run(release);
}

// ---------------------------------------------------------------- pictures

void Graphs::draw_graph(const Graph& graph, unsigned flags, std::string& out) {
  const std::string name = "graph_" + std::to_string(graph.handle >> 4 & 0xfffffff);
  out += "subgraph cluster_" + name + " {\nlabel=\"" + name + "\" graph[style=\"dashed\"];\n";
  std::unordered_map<const Node*, std::string> names;
  for (const std::unique_ptr<Node>& node : graph.nodes) {
    const std::string own = name + "_node_" + std::to_string(names.size());
    std::string label = std::to_string(names.size()) + "\\n" + kind_name(type_of(*node->payload));
    constexpr unsigned with_handles =
        CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE;
    if ((flags & with_handles) != 0) label += "\\nnode " + hex(node->handle);
    label += details(*node->payload, flags);
    out += "\"" + own + "\" [style=\"solid\" shape=\"rectangle\" label=\"" + label + "\"];\n";
    names[node.get()] = own;
  }
  for (const std::unique_ptr<Node>& node : graph.nodes) {
    for (const Node* before : node->after) {
      out += "\"" + names[before] + "\" -> \"" + names[node.get()] + "\";\n";
    }
  }
  for (const std::unique_ptr<Node>& node : graph.nodes) {
    if (const ChildNode* child = std::get_if<ChildNode>(node->payload.get())) {
      draw_graph(*child->graph, flags, out);
    }
  }
  out += "}\n";
}

CUresult Graphs::draw(CUgraph handle, const char* path, unsigned flags) {
  std::string text = "digraph dot {\n";
  {
    std::lock_guard<std::mutex> guard(mutex_);
    Graph* graph = find_graph(handle);
    if (graph == nullptr || path == nullptr || flags > 0xffff) return CUDA_ERROR_INVALID_VALUE;
    draw_graph(*graph, flags, text);
  }
  text += "}\n";
  std::FILE* const file = std::fopen(path, "we");
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && written ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace headrace::driverabi
