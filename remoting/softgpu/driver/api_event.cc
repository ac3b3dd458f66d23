// Events: positions in streams, with times.
#include <cuda.h>
#include <time.h>

#include "remoting/softgpu/driver/capture.h"
#include "remoting/softgpu/driver/runtime.h"

namespace headrace::softgpu {
namespace {

std::int64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &time);
  return std::int64_t{time.tv_sec} * 1000000000 + time.tv_nsec;
}

}  // namespace

void Event::Record::stamp() { nanoseconds.store(now(), std::memory_order_release); }

namespace {

// The event's context has failed: then every call on it says so.
CUresult state_of(const EventPtr& event) {
  ContextPtr context = event->context.lock();
  if (context == nullptr || !context->active()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return context->sticky();
}

template <typename Body>
CUresult with_event(CUevent handle, Body&& body) noexcept {
  return with_runtime([&](Runtime& runtime) -> CUresult {
    EventPtr event = runtime.events.find(handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return body(runtime, event);
  });
}

}  // namespace

CUresult cuEventCreate(CUevent* out, unsigned int flags) {
  return with_context([&](Runtime& runtime, ContextPtr& context) {
    constexpr unsigned kKnown =
        CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (out == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_EVENT_INTERPROCESS) != 0) {
      return (flags & CU_EVENT_DISABLE_TIMING) != 0 ? CUDA_ERROR_NOT_SUPPORTED
                                                    : CUDA_ERROR_INVALID_VALUE;
    }
    EventPtr event = std::make_shared<Event>();
    event->context = context;
    event->flags = flags;
    *out = to_handle<CUevent>(runtime.events.add(event));
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy_v2(CUevent handle) {
  return with_runtime([&](Runtime& runtime) {
    if (graphs().watching()) graphs().event_ends(handle);
    return runtime.events.remove(handle) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}
CUresult cuEventDestroy(CUevent handle) { return softgpu::cuEventDestroy_v2(handle); }

CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream_handle, unsigned int flags) {
  return with_stream(stream_handle, [&](Runtime& runtime, ContextPtr& context, StreamPtr& stream) {
    EventPtr event = runtime.events.find(handle);
    if (event == nullptr || event->context.lock() != context) return CUDA_ERROR_INVALID_HANDLE;
    if ((flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (graphs().watching()) {
      if (Graphs::Verdict captured =
              graphs().record(capture_stream(*context, *stream), handle, flags)) {
        return *captured;
      }
    }
    std::shared_ptr<Event::Record> record = std::make_shared<Event::Record>();
    auto stamp = [record] {
      record->stamp();
      return CUDA_SUCCESS;
    };
    if (context->idle(stream)) {
      stamp();
    } else {
      // Recorded after a failure too: whoever waits for it must be let go.
      record->operation = context->submit(stream, stamp, true);
    }
    std::lock_guard<std::mutex> guard(event->mutex);
    event->record = std::move(record);
    return CUDA_SUCCESS;
  });
}
CUresult cuEventRecord(CUevent handle, CUstream stream) {
  return softgpu::cuEventRecordWithFlags(handle, stream, CU_EVENT_RECORD_DEFAULT);
}

CUresult cuEventQuery(CUevent handle) {
  return with_event(handle, [&](Runtime&, EventPtr& event) {
    if (graphs().watching()) {
      if (Graphs::Verdict captured = graphs().event_asked(handle)) return *captured;
    }
    if (Graphs::Verdict upset = capture_upset()) return *upset;
    std::shared_ptr<Event::Record> record = event->current();
    if (record != nullptr && !record->done()) {
      CUresult state = state_of(event);
      return state != CUDA_SUCCESS ? state : CUDA_ERROR_NOT_READY;
    }
    return state_of(event);
  });
}

CUresult cuEventSynchronize(CUevent handle) {
  return with_event(handle, [&](Runtime&, EventPtr& event) {
    if (graphs().watching()) {
      if (Graphs::Verdict captured = graphs().event_asked(handle)) return *captured;
    }
    std::shared_ptr<Event::Record> record = event->current();
    if (record != nullptr && record->operation != nullptr) record->operation->wait();
    if (ContextPtr context = event->context.lock()) context->output().flush();
    return state_of(event);
  });
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent first, CUevent last) {
  return with_runtime([&](Runtime& runtime) {
    EventPtr from = runtime.events.find(first), to = runtime.events.find(last);
    if (from == nullptr || to == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (((from->flags | to->flags) & CU_EVENT_DISABLE_TIMING) != 0) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    if (CUresult state = state_of(from)) return state;
    std::shared_ptr<Event::Record> begin = from->current(), end = to->current();
    if (begin == nullptr || end == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (!begin->done() || !end->done()) return CUDA_ERROR_NOT_READY;
    std::int64_t elapsed = end->nanoseconds.load(std::memory_order_acquire) -
                           begin->nanoseconds.load(std::memory_order_acquire);
    *milliseconds = static_cast<float>(static_cast<double>(elapsed) * 1e-6);
    return CUDA_SUCCESS;
  });
}
CUresult cuEventElapsedTime(float* milliseconds, CUevent first, CUevent last) {
  return softgpu::cuEventElapsedTime_v2(milliseconds, first, last);
}

}  // namespace headrace::softgpu
