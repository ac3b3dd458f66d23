// Stream memory operations: waiting for and writing words in the order of a stream. And events of a
// whole context, which are waits and records for all its streams.
#include <cuda.h>

#include <vector>

#include "remoting/driverabi/stream_memory.h"
#include "remoting/softgpu/driver/capture.h"

namespace headrace::softgpu {

// The body behind it here, and those of driverabi/composed_bodies.inc.
decltype(::cuStreamBatchMemOp_v2) cuStreamBatchMemOp_v2;
decltype(::cuStreamWaitValue32_v2) cuStreamWaitValue32_v2;
decltype(::cuStreamWaitValue64_v2) cuStreamWaitValue64_v2;
decltype(::cuStreamWriteValue32_v2) cuStreamWriteValue32_v2;
decltype(::cuStreamWriteValue64_v2) cuStreamWriteValue64_v2;

namespace {

using driverabi::MemoryOperation;

// Runs `use` while the word is there. It may be in device memory or in page-locked memory.
template <typename Use>
bool hold_word(Runtime& runtime, const MemoryOperation& operation, const Use& use) {
  if (Device* device = runtime.device_of(operation.address)) {
    return device->memory()->hold(operation.address, operation.bytes(), use);
  }
  return runtime.host_memory().hold(operation.address, operation.bytes(), use);
}

template <typename Word>
Word* word_at(const MemoryOperation& operation) {
  return reinterpret_cast<Word*>(operation.address);
}

std::uint64_t load(const MemoryOperation& operation) {
  if (operation.bytes() == 8) {
    return __atomic_load_n(word_at<std::uint64_t>(operation), __ATOMIC_ACQUIRE);
  }
  return __atomic_load_n(word_at<std::uint32_t>(operation), __ATOMIC_ACQUIRE);
}

void store(const MemoryOperation& operation) {
  if (operation.bytes() == 8) {
    __atomic_store_n(word_at<std::uint64_t>(operation), operation.value, __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(word_at<std::uint32_t>(operation), static_cast<std::uint32_t>(operation.value),
                     __ATOMIC_RELEASE);
  }
}

void submit(Runtime& runtime, const ContextPtr& context, const StreamPtr& stream,
            const MemoryOperation& operation) {
  if (operation.waits()) {
    context->submit_wait(stream, [&runtime, operation, raw = context.get()] {
      bool over = false;
      if (hold_word(runtime, operation,
                    [&] { over = driverabi::wait_is_over(operation, load(operation)); })) {
        return over;
      }
      raw->fail(CUDA_ERROR_ILLEGAL_ADDRESS);  // the memory went while it was waited for
      return true;
    });
  } else if (operation.writes()) {
    auto write = [&runtime, operation] {
      return hold_word(runtime, operation, [&] { store(operation); }) ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_ILLEGAL_ADDRESS;
    };
    if (context->idle(stream)) {
      write();
    } else {
      context->submit(stream, write);
    }
  }  // a barrier orders what is in order already
}

CUresult find_context(Runtime& runtime, CUcontext handle, ContextPtr* out) {
  if (handle == nullptr) return runtime.current(out);
  *out = runtime.contexts.find(handle);
  if (*out == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return (*out)->active() ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

}  // namespace

CUresult cuStreamBatchMemOp_v2(CUstream handle, unsigned int count,
                               CUstreamBatchMemOpParams* params, unsigned int flags) {
  return with_stream(handle, [&](Runtime& runtime, ContextPtr& context, StreamPtr& stream) {
    if (CUresult bad = driverabi::check_memory_operations(params, count, flags)) return bad;
    std::vector<MemoryOperation> operations;
    for (unsigned i = 0; i < count; ++i) {
      operations.push_back(driverabi::read_memory_operation(params[i]));
      const MemoryOperation& last = operations.back();
      if (last.address != 0 && !hold_word(runtime, last, [] {})) return CUDA_ERROR_INVALID_VALUE;
    }
    if (Graphs::Verdict captured = capture_work(*context, *stream, [&] {
          return driverabi::BatchMemOpNode{{params, params + count},
                                           to_handle<CUcontext>(context->handle)};
        })) {
      return *captured;
    }
    for (const MemoryOperation& operation : operations) {
      submit(runtime, context, stream, operation);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* params,
                            unsigned int flags) {
  return softgpu::cuStreamBatchMemOp_v2(stream, count, params, flags);
}
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                             unsigned int flags) {
  return softgpu::cuStreamWaitValue32_v2(stream, address, value, flags);
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                             unsigned int flags) {
  return softgpu::cuStreamWaitValue64_v2(stream, address, value, flags);
}
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                              unsigned int flags) {
  return softgpu::cuStreamWriteValue32_v2(stream, address, value, flags);
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                              unsigned int flags) {
  return softgpu::cuStreamWriteValue64_v2(stream, address, value, flags);
}

// ---------------------------------------------------------------- a whole context

CUresult cuCtxRecordEvent(CUcontext handle, CUevent event_handle) {
  return with_runtime([&](Runtime& runtime) -> CUresult {
    ContextPtr context;
    if (CUresult bad = find_context(runtime, handle, &context)) return bad;
    if (CUresult bad = context->reported_error()) return bad;
    EventPtr event = runtime.events.find(event_handle);
    if (event == nullptr || event->context.lock() != context) return CUDA_ERROR_INVALID_HANDLE;
    if (graphs().watching()) {
      if (Graphs::Verdict waits = graphs().context_waits(context->handle)) return *waits;
      graphs().event_ends(event_handle);  // what was captured in it
    }
    std::shared_ptr<Event::Record> record = std::make_shared<Event::Record>();
    record->operation =
        runtime.engine().submit([record] { record->stamp(); }, 0, context->all_pending());
    std::lock_guard<std::mutex> guard(event->mutex);
    event->record = std::move(record);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxWaitEvent(CUcontext handle, CUevent event_handle) {
  return with_runtime([&](Runtime& runtime) -> CUresult {
    ContextPtr context;
    if (CUresult bad = find_context(runtime, handle, &context)) return bad;
    if (CUresult bad = context->reported_error()) return bad;
    EventPtr event = runtime.events.find(event_handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (graphs().watching()) {
      if (Graphs::Verdict waits = graphs().context_waits(context->handle)) return *waits;
      if (Graphs::Verdict captured = graphs().event_asked(event_handle)) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
      }
    }
    std::shared_ptr<Event::Record> record = event->current();
    if (record != nullptr && !record->done()) context->hold_until(record->operation);
    return CUDA_SUCCESS;
  });
}

}  // namespace headrace::softgpu
