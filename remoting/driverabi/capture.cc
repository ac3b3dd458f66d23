// Stream capture: calls on a capturing stream become nodes of a graph; what would upset the capture
// is refused, and ends it.
#include <algorithm>

#include "driverabi/graphs.h"

namespace headrace::driverabi {
namespace {

const void* this_thread() {
  static thread_local const char mark = 0;
  return &mark;
}

std::uint64_t number_of(const void* handle) { return reinterpret_cast<std::uint64_t>(handle); }

// Whether every node of `nodes` comes before, or is one of, `ends`.
bool all_reached(const std::vector<Node*>& nodes, const std::vector<Node*>& ends) {
  std::unordered_set<const Node*> seen(ends.begin(), ends.end());
  std::vector<const Node*> open(ends.begin(), ends.end());
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    for (const Node* before : node->after) {
      if (seen.insert(before).second) open.push_back(before);
    }
  }
  return std::all_of(nodes.begin(), nodes.end(), [&](Node* node) { return seen.contains(node); });
}

void join(std::vector<Node*>& into, const std::vector<Node*>& more) {
  for (Node* node : more) {
    if (std::find(into.begin(), into.end(), node) == into.end()) into.push_back(node);
  }
}

}  // namespace

Graphs::Capture* Graphs::capture_of(std::uint64_t key) {
  for (const std::unique_ptr<Capture>& capture : captures_) {
    if (capture->streams.contains(key)) return capture.get();
  }
  return nullptr;
}

// Work in the legacy stream would have to wait for blocking streams, which capture.
Graphs::Verdict Graphs::legacy_use(const CaptureStream& stream) {
  if (!stream.legacy) return std::nullopt;
  Verdict verdict;
  for (const std::unique_ptr<Capture>& capture : captures_) {
    for (const auto& [key, captured] : capture->streams) {
      if (!captured.stream.blocking || captured.stream.context != stream.context) continue;
      capture->invalid = true;
      verdict = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  }
  return verdict;
}

// ---------------------------------------------------------------- begin and end

CUresult Graphs::begin_locked(const CaptureStream& stream, std::shared_ptr<Graph> graph,
                              bool to_graph, std::vector<Node*> after, CUstreamCaptureMode mode) {
  std::unique_ptr<Capture> capture = std::make_unique<Capture>();
  capture->id = next_capture_++;
  capture->mode = mode;
  capture->thread = this_thread();
  capture->origin = stream.key;
  capture->graph = std::move(graph);
  capture->graph->capturing = true;
  capture->to_graph = to_graph;
  CapturedStream& first = capture->streams[stream.key];
  first.stream = stream;
  first.after = std::move(after);
  captures_.push_back(std::move(capture));
  watch();
  return CUDA_SUCCESS;
}

CUresult Graphs::begin(const CaptureStream& stream, CUstreamCaptureMode mode) {
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (stream.legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  std::lock_guard<std::mutex> guard(mutex_);
  if (capture_of(stream.key) != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  return begin_locked(stream, make_graph(), false, {}, mode);
}

CUresult Graphs::begin_to(const CaptureStream& stream, CUgraph handle, const CUgraphNode* after,
                          std::size_t count, CUstreamCaptureMode mode) {
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (stream.legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  std::lock_guard<std::mutex> guard(mutex_);
  auto found = graphs_.find(number_of(handle));
  if (found == graphs_.end() || found->second->capturing) return CUDA_ERROR_INVALID_VALUE;
  if (capture_of(stream.key) != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  std::vector<Node*> nodes;
  if (CUresult bad = read_nodes(*found->second, after, count, &nodes)) return bad;
  return begin_locked(stream, found->second, true, std::move(nodes), mode);
}

CUresult Graphs::end(const CaptureStream& stream, CUgraph* out) {
  std::lock_guard<std::mutex> guard(mutex_);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  Capture* capture = capture_of(stream.key);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream.key) {
    capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != this_thread()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  CUresult result = capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) {
    const std::vector<Node*>& ends = capture->streams[stream.key].after;
    for (const auto& [key, forked] : capture->streams) {
      if (!all_reached(forked.after, ends)) result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
  }
  // Events keep the mark that they were captured, but no nodes of a graph that may go.
  for (auto& [event, captured] : events_) {
    if (captured.capture == capture->id) captured.after.clear();
  }
  capture->graph->capturing = false;
  if (result == CUDA_SUCCESS) {
    *out = reinterpret_cast<CUgraph>(capture->graph->handle);
  } else if (!capture->to_graph) {
    forget(*capture->graph);
  }
  std::erase_if(captures_, [&](const auto& one) { return one.get() == capture; });
  watch();
  return result;
}

// ---------------------------------------------------------------- questions

CUresult Graphs::info(const CaptureStream& stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                      CUgraph* graph, const CUgraphNode** after, const CUgraphEdgeData** edges,
                      std::size_t* count) {
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> guard(mutex_);
  Capture* capture = capture_of(stream.key);
  if (capture == nullptr && stream.legacy) {
    for (const std::unique_ptr<Capture>& one : captures_) {
      for (const auto& [key, captured] : one->streams) {
        if (captured.stream.blocking && captured.stream.context == stream.context) {
          return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
      }
    }
  }
  *status = capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE
            : capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                               : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  const bool active = *status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (id != nullptr) *id = active ? capture->id : 0;
  if (graph != nullptr)
    *graph = active ? reinterpret_cast<CUgraph>(capture->graph->handle) : nullptr;
  if (edges != nullptr) *edges = nullptr;  // no edge has data
  if (after != nullptr) *after = nullptr;
  if (count != nullptr) *count = 0;
  if (!active) return CUDA_SUCCESS;
  CapturedStream& captured = capture->streams[stream.key];
  captured.shown.clear();
  for (const Node* node : captured.after) {
    captured.shown.push_back(reinterpret_cast<CUgraphNode>(node->handle));
  }
  if (after != nullptr && !captured.shown.empty()) *after = captured.shown.data();
  if (count != nullptr) *count = captured.shown.size();
  return CUDA_SUCCESS;
}

CUresult Graphs::update(const CaptureStream& stream, CUgraphNode* handles, std::size_t count,
                        unsigned flags) {
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard<std::mutex> guard(mutex_);
  Capture* capture = capture_of(stream.key);
  if (capture == nullptr || capture->invalid) return CUDA_ERROR_ILLEGAL_STATE;
  std::vector<Node*> nodes;
  if (CUresult bad = read_nodes(*capture->graph, handles, count, &nodes)) return bad;
  std::vector<Node*>& after = capture->streams[stream.key].after;
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) after.clear();
  join(after, nodes);
  return CUDA_SUCCESS;
}

// ---------------------------------------------------------------- calls

Graphs::Verdict Graphs::work(const CaptureStream& stream, Payload payload) {
  std::lock_guard<std::mutex> guard(mutex_);
  Capture* capture = capture_of(stream.key);
  if (capture == nullptr) return legacy_use(stream);
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::vector<Node*>& after = capture->streams[stream.key].after;
  Node* node =
      add_node(*capture->graph, std::make_shared<const Payload>(std::move(payload)), after);
  after = {node};
  return CUDA_SUCCESS;
}

Graphs::Verdict Graphs::forbidden(const CaptureStream& stream) {
  std::lock_guard<std::mutex> guard(mutex_);
  Capture* capture = capture_of(stream.key);
  if (capture == nullptr) return legacy_use(stream);
  capture->invalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

Graphs::Verdict Graphs::record(const CaptureStream& stream, CUevent event, unsigned flags) {
  if ((flags & CU_EVENT_RECORD_EXTERNAL) != 0) return work(stream, EventRecordNode{event});
  std::lock_guard<std::mutex> guard(mutex_);
  Capture* capture = capture_of(stream.key);
  if (capture == nullptr) {
    if (Verdict verdict = legacy_use(stream)) return verdict;
    events_.erase(number_of(event));
    watch();
    return std::nullopt;
  }
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  events_[number_of(event)] = {capture->id, capture->streams[stream.key].after};
  watch();
  return CUDA_SUCCESS;
}

Graphs::Verdict Graphs::wait(const CaptureStream& stream, CUevent event, unsigned flags) {
  if ((flags & CU_EVENT_WAIT_EXTERNAL) != 0) return work(stream, EventWaitNode{event});
  std::lock_guard<std::mutex> guard(mutex_);
  Capture* mine = capture_of(stream.key);
  auto found = events_.find(number_of(event));
  Capture* recorded = nullptr;
  if (found != events_.end()) {
    for (const std::unique_ptr<Capture>& one : captures_) {
      if (one->id == found->second.capture) recorded = one.get();
    }
  }
  if (mine == nullptr) {
    if (found == events_.end()) return legacy_use(stream);
    if (recorded == nullptr) return CUDA_ERROR_CAPTURED_EVENT;  // of a capture that has ended
    if (recorded->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream.legacy) {
      recorded->invalid = true;
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    // The stream joins the capture.
    CapturedStream& joined = recorded->streams[stream.key];
    joined.stream = stream;
    joined.after = found->second.after;
    return CUDA_SUCCESS;
  }
  if (mine->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (found == events_.end() || recorded == nullptr) {
    // Work outside the capture cannot be waited for within it.
    mine->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (recorded != mine) {
    mine->invalid = recorded->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  join(mine->streams[stream.key].after, found->second.after);
  return CUDA_SUCCESS;
}

Graphs::Verdict Graphs::event_asked(CUevent event) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto found = events_.find(number_of(event));
  if (found == events_.end()) return std::nullopt;
  for (const std::unique_ptr<Capture>& one : captures_) {
    if (one->id == found->second.capture) one->invalid = true;
  }
  return CUDA_ERROR_CAPTURED_EVENT;
}

Graphs::Verdict Graphs::context_waits(std::uint64_t context) {
  std::lock_guard<std::mutex> guard(mutex_);
  Verdict verdict;
  for (const std::unique_ptr<Capture>& capture : captures_) {
    for (const auto& [key, captured] : capture->streams) {
      if (captured.stream.context != context) continue;
      capture->invalid = true;
      verdict = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  return verdict;
}

Graphs::Verdict Graphs::unsafe(CUstreamCaptureMode mode) {
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return std::nullopt;
  std::lock_guard<std::mutex> guard(mutex_);
  Verdict verdict;
  for (const std::unique_ptr<Capture>& capture : captures_) {
    const bool mine = capture->thread == this_thread();
    const bool minds = mine ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                            : mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                  capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!minds) continue;
    capture->invalid = true;
    verdict = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return verdict;
}

void Graphs::stream_ends(const CaptureStream& stream) {
  std::lock_guard<std::mutex> guard(mutex_);
  Capture* capture = capture_of(stream.key);
  if (capture == nullptr) return;
  // What a forked stream captured must still be joined: it stays known.
  if (capture->origin != stream.key) return;
  // Nobody can end it any more.
  capture->graph->capturing = false;
  for (auto& [event, captured] : events_) {
    if (captured.capture == capture->id) captured.after.clear();
  }
  if (!capture->to_graph) forget(*capture->graph);
  std::erase_if(captures_, [&](const auto& one) { return one.get() == capture; });
  watch();
}

void Graphs::event_ends(CUevent event) {
  std::lock_guard<std::mutex> guard(mutex_);
  events_.erase(number_of(event));
  watch();
}

}  // namespace headrace::driverabi
