// CUDA graphs and stream capture: what they are made of, and the rules that need no device. Both
// libraries hold graphs here and run them as calls of their own functions, in an order that the
// dependencies allow; so a graph costs its server nothing until it is launched.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

namespace headrace::driverabi {

// ---------------------------------------------------------------- nodes

struct EmptyNode {};
struct KernelNode {
  CUfunction function = nullptr;
  CUcontext context = nullptr;
  unsigned grid[3] = {}, block[3] = {};
  unsigned shared_bytes = 0;
  std::vector<CUlaunchAttribute> attributes;
  std::vector<std::uint8_t> params;      // the parameter block, laid out
  std::vector<std::uint32_t> offsets;    // of each parameter in it
  mutable std::vector<void*> addresses;  // of each parameter, for cuGraphKernelNodeGetParams
};
struct MemcpyNode {
  CUDA_MEMCPY3D what{};
};
struct MemsetNode {
  CUDA_MEMSET_NODE_PARAMS what{};
};
struct HostNode {
  CUhostFn function = nullptr;
  void* data = nullptr;
};
struct EventRecordNode {
  CUevent event = nullptr;
};
struct EventWaitNode {
  CUevent event = nullptr;
};
struct BatchMemOpNode {
  mutable std::vector<CUstreamBatchMemOpParams> operations;  // shown to the program by address
  CUcontext context = nullptr;
};
struct Graph;
struct ChildNode {
  std::shared_ptr<Graph> graph;
};
using Payload = std::variant<EmptyNode, KernelNode, MemcpyNode, MemsetNode, HostNode,
                             EventRecordNode, EventWaitNode, ChildNode, BatchMemOpNode>;

CUgraphNodeType type_of(const Payload& payload);
// New parameters of a kernel node leave its attributes as they were.
void keep_attributes(const Payload& before, Payload& after);

struct Node {
  std::uint64_t handle = 0;
  std::uint64_t origin = 0;  // in a clone: the node that this is a copy of
  Graph* graph = nullptr;
  std::shared_ptr<const Payload> payload;
  std::vector<Node*> after;
};

struct Graph {
  std::uint64_t handle = 0;
  std::uint64_t origin = 0;
  bool embedded = false;   // belongs to a node of another graph
  bool capturing = false;  // belongs to a capture that goes on
  std::vector<std::unique_ptr<Node>> nodes;
  std::map<std::uint64_t, unsigned> objects;  // references that it holds: handle -> how many
};

// Something of the program's that lasts as long as anybody holds a reference to it.
struct UserObject {
  CUhostFn destroy = nullptr;
  void* data = nullptr;
  std::uint64_t references = 0;
};

// An instantiated graph at one time: its nodes in an order to run them in.
struct Step;
using Plan = std::vector<Step>;
struct Step {
  std::uint64_t origin = 0;
  std::shared_ptr<const Payload> payload;
  std::shared_ptr<const Plan> child;  // of a child node: its graph when it was instantiated
  std::vector<std::uint32_t> after;
  bool enabled = true;
};

struct Exec {
  std::uint64_t flags = 0;
  std::mutex mutex;
  std::shared_ptr<const Plan> plan;    // under mutex; replaced, never changed
  CUevent finished = nullptr;          // under mutex: the end of the launch before
  std::uint64_t context = 0;           // under mutex: of that event
  std::uint64_t last_stream = 0;       // under mutex
  CUstream last_handle = nullptr;      // under mutex
  bool launched = false;               // under mutex
  std::vector<std::uint64_t> objects;  // one reference each; under Graphs' mutex
};

// ---------------------------------------------------------------- what a library supplies

// A stream as capture sees it.
struct CaptureStream {
  std::uint64_t key = 0;  // names it within the process
  std::uint64_t context = 0;
  bool legacy = false;
  bool blocking = false;
};

struct GraphHost {
  CUresult (*stream)(CUstream, CaptureStream*);
  // Checks a launch as cuLaunchKernel does and lays out its parameters.
  CUresult (*kernel)(const CUDA_KERNEL_NODE_PARAMS_v2&, KernelNode*);
  CUresult (*launch)(const CUlaunchConfig*, CUfunction, void**, void**);
  CUresult (*copy)(const CUDA_MEMCPY3D*, CUstream);
  CUresult (*set8)(CUdeviceptr, std::size_t, unsigned char, std::size_t, std::size_t, CUstream);
  CUresult (*set16)(CUdeviceptr, std::size_t, unsigned short, std::size_t, std::size_t, CUstream);
  CUresult (*set32)(CUdeviceptr, std::size_t, unsigned int, std::size_t, std::size_t, CUstream);
  CUresult (*host_function)(CUstream, CUhostFn, void*);
  CUresult (*make_event)(CUevent*, unsigned);
  CUresult (*end_event)(CUevent);
  CUresult (*record)(CUevent, CUstream);
  CUresult (*wait)(CUstream, CUevent, unsigned);
  CUresult (*synchronise)(CUstream);
  CUresult (*memory_operations)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);
};

// ---------------------------------------------------------------- all graphs of a process

class Graphs {
 public:
  explicit Graphs(const GraphHost& host) : host_(host) {}
  const GraphHost& host() const { return host_; }

  // ---- graphs and nodes (graphs.cc)
  CUresult create(CUgraph* out, unsigned flags);
  CUresult destroy(CUgraph graph);
  CUresult clone(CUgraph* out, CUgraph graph);
  CUresult find_in_clone(CUgraphNode* out, CUgraphNode node, CUgraph clone);
  CUresult add(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, std::size_t count,
               Payload payload);
  CUresult add_child(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, std::size_t count,
                     CUgraph child);
  CUresult destroy_node(CUgraphNode node);
  CUresult nodes(CUgraph graph, CUgraphNode* out, std::size_t* count, bool roots_only);
  CUresult edges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                 std::size_t* count);
  CUresult dependencies(CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* data,
                        std::size_t* count, bool dependents);
  CUresult connect(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, std::size_t count,
                   bool remove);
  CUresult node_type(CUgraphNode node, CUgraphNodeType* type);
  // The payload; INVALID_VALUE when it is not of this type.
  CUresult payload(CUgraphNode node, CUgraphNodeType type, std::shared_ptr<const Payload>* out);
  CUresult set_payload(CUgraphNode node, Payload payload);
  // Attributes of a kernel node.
  CUresult kernel_attribute(CUgraphNode node, CUlaunchAttributeID id, CUlaunchAttributeValue* out);
  CUresult set_kernel_attribute(CUgraphNode node, CUlaunchAttributeID id,
                                const CUlaunchAttributeValue* value);
  CUresult copy_kernel_attributes(CUgraphNode to, CUgraphNode from);

  // ---- user objects and pictures (graph_objects.cc)
  CUresult object_create(CUuserObject* out, void* data, CUhostFn destroy, unsigned references,
                         unsigned flags);
  CUresult object_retain(CUuserObject object, unsigned count);
  CUresult object_release(CUuserObject object, unsigned count);
  CUresult graph_retain(CUgraph graph, CUuserObject object, unsigned count, unsigned flags);
  CUresult graph_release(CUgraph graph, CUuserObject object, unsigned count);
  CUresult draw(CUgraph graph, const char* path, unsigned flags);

  // ---- instantiated graphs (graph_exec.cc)
  CUresult instantiate(CUgraphExec* out, CUgraph graph, unsigned long long flags);
  CUresult exec_destroy(CUgraphExec exec);
  CUresult exec_flags(CUgraphExec exec, cuuint64_t* flags);
  CUresult exec_update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info);
  CUresult exec_set(CUgraphExec exec, CUgraphNode node, Payload payload);
  CUresult exec_set_child(CUgraphExec exec, CUgraphNode node, CUgraph child);
  CUresult exec_enable(CUgraphExec exec, CUgraphNode node, bool enable);
  CUresult exec_enabled(CUgraphExec exec, CUgraphNode node, unsigned* enabled);
  CUresult upload(CUgraphExec exec, CUstream stream);
  CUresult launch(CUgraphExec exec, CUstream stream);

  // ---- capture (capture.cc)
  // Whether anything is captured now or was captured in an event: else calls go on at once.
  bool watching() const { return watched_.load(std::memory_order_acquire) != 0; }

  CUresult begin(const CaptureStream& stream, CUstreamCaptureMode mode);
  CUresult begin_to(const CaptureStream& stream, CUgraph graph, const CUgraphNode* after,
                    std::size_t count, CUstreamCaptureMode mode);
  CUresult end(const CaptureStream& stream, CUgraph* graph);
  CUresult info(const CaptureStream& stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                CUgraph* graph, const CUgraphNode** after, const CUgraphEdgeData** edges,
                std::size_t* count);
  CUresult update(const CaptureStream& stream, CUgraphNode* after, std::size_t count,
                  unsigned flags);

  // What capture makes of a call. No value: it does not concern capture and goes on.
  using Verdict = std::optional<CUresult>;
  Verdict work(const CaptureStream& stream, Payload payload);
  Verdict forbidden(const CaptureStream& stream);  // waits and questions
  Verdict record(const CaptureStream& stream, CUevent event, unsigned flags);
  Verdict wait(const CaptureStream& stream, CUevent event, unsigned flags);
  Verdict event_asked(CUevent event);
  // Waiting for a whole context.
  Verdict context_waits(std::uint64_t context);
  // Calls that may upset a capture, by the thread's mode.
  Verdict unsafe(CUstreamCaptureMode mode);
  void stream_ends(const CaptureStream& stream);
  void event_ends(CUevent event);

 private:
  struct CapturedStream {
    CaptureStream stream;
    std::vector<Node*> after;
    std::vector<CUgraphNode> shown;  // what cuStreamGetCaptureInfo pointed to
  };
  struct Capture {
    std::uint64_t id = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    const void* thread = nullptr;
    std::uint64_t origin = 0;  // key of the stream that it began in
    std::shared_ptr<Graph> graph;
    bool to_graph = false;  // the graph was there before
    bool invalid = false;
    std::map<std::uint64_t, CapturedStream> streams;
  };
  struct CapturedEvent {
    std::uint64_t capture = 0;  // its id
    std::vector<Node*> after;
  };

  // All with the mutex held.
  std::shared_ptr<Graph> make_graph();
  Graph* find_graph(CUgraph graph);
  Node* find_node(CUgraphNode node);
  Node* add_node(Graph& graph, std::shared_ptr<const Payload> payload, std::vector<Node*> after);
  CUresult read_nodes(const Graph& graph, const CUgraphNode* handles, std::size_t count,
                      std::vector<Node*>* out);
  std::shared_ptr<Graph> copy_graph(const Graph& from);
  std::shared_ptr<const Payload> copy_payload(const std::shared_ptr<const Payload>& from);
  void forget(Graph& graph);
  bool drop_references(std::uint64_t object, std::uint64_t count);
  void hold_objects(const Graph& graph, Exec& exec);
  void draw_graph(const Graph& graph, unsigned flags, std::string& out);
  // Gives references back once the stream has done what was given to it so far; null: now.
  void release_objects(const std::vector<std::uint64_t>& objects, const CUstream* after);
  // Calls the functions of objects that have ended: without the mutex.
  void end_objects();
  static bool plan_of(const Graph& graph, Plan* plan);
  std::shared_ptr<Graph> graph_of(const Plan& plan);
  Capture* capture_of(std::uint64_t key);
  Verdict legacy_use(const CaptureStream& stream);
  CUresult begin_locked(const CaptureStream& stream, std::shared_ptr<Graph> graph, bool to_graph,
                        std::vector<Node*> after, CUstreamCaptureMode mode);

  std::shared_ptr<Exec> find_exec(CUgraphExec exec);
  template <typename Change>
  CUresult change_step(CUgraphExec exec, CUgraphNode node, const Change& change);
  // `host_ran`: a function of the program is under way in the stream.
  CUresult replay(const Plan& plan, CUstream stream, bool* host_ran);
  CUresult replay_step(const Step& step, CUstream stream, bool* host_ran);
  Verdict launch_captured(const Exec& exec, const CaptureStream& stream);

  const GraphHost host_;
  std::mutex mutex_;
  std::uint64_t next_ = 1;
  std::unordered_map<std::uint64_t, std::shared_ptr<Graph>> graphs_;
  std::unordered_map<std::uint64_t, Node*> nodes_;
  std::unordered_map<std::uint64_t, std::shared_ptr<Exec>> execs_;
  std::unordered_map<std::uint64_t, UserObject> objects_;
  std::vector<UserObject> ended_objects_;  // whose functions are still to be called
  std::vector<std::unique_ptr<Capture>> captures_;
  std::unordered_map<std::uint64_t, CapturedEvent> events_;  // last recorded in a capture
  std::uint64_t next_capture_ = 1;
  std::atomic<std::size_t> watched_{0};
  void watch() { watched_.store(captures_.size() + events_.size(), std::memory_order_release); }
};

}  // namespace headrace::driverabi
