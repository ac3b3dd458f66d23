// Stream memory operations: checked here, carried out by the server's driver. And events of a whole
// context.
#include "driverabi/stream_memory.h"

#include "client/captures.h"
#include "client/copies.h"
#include "client/process.h"
#include "client/remote.h"
#include "client/streams.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

using driverabi::MemoryOperation;

// The context that a call names; events are used in it, whichever is current.
CUresult find_context(CUcontext handle, std::shared_ptr<Context>& context) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  std::uint64_t id = 0;
  if (const CUresult bad = to_wire(HandleKind::context, handle, id); bad != CUDA_SUCCESS) {
    return bad;
  }
  context = process().contexts.find(id);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return static_cast<CUresult>(context->sticky.load());
}

}  // namespace

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams* params, unsigned int flags) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  calls::CuStreamBatchMemOp_v2 call;
  if (const CUresult bad = resolve_stream(stream, call.stream); bad != CUDA_SUCCESS) return bad;
  if (const CUresult bad = driverabi::check_memory_operations(params, count, flags);
      bad != CUDA_SUCCESS) {
    return bad;
  }
  bool known = true;
  for (unsigned i = 0; i < count; ++i) {
    const MemoryOperation operation = driverabi::read_memory_operation(params[i]);
    if (operation.address != 0) {
      const Target target = target_of(operation.address, operation.bytes());
      known = known && target == Target::inside;
    }
    call.operations.push_back({static_cast<std::uint32_t>(operation.type), operation.flags,
                               operation.address, operation.value});
  }
  if (const Graphs::Verdict captured = capture_work(*context, call.stream, [&] {
        return driverabi::BatchMemOpNode{{params, params + count}, context->handle()};
      })) {
    return *captured;
  }
  // Words in host memory of ours are waited for and written at the server.
  HostTwins& twins = process().host_twins;
  for (const calls::MemoryOperation& operation : call.operations) {
    if (operation.address == 0) continue;
    if (const CUresult bad = twins.share(operation.address); bad != CUDA_SUCCESS) return bad;
  }
  if (const CUresult bad = twins.push(); bad != CUDA_SUCCESS) return bad;
  return send_or_ask(context->id, call, known);
}

CUresult cuCtxRecordEvent(CUcontext handle, CUevent event) {
  std::shared_ptr<Context> context;
  if (const CUresult bad = find_context(handle, context); bad != CUDA_SUCCESS) return bad;
  const std::shared_ptr<Event> known =
      process().events.find(reinterpret_cast<std::uint64_t>(event));
  if (known == nullptr || known->context != context.get()) return CUDA_ERROR_INVALID_HANDLE;
  if (graphs().watching()) {
    if (const Graphs::Verdict waits = graphs().context_waits(context->id)) return *waits;
    graphs().event_ends(event);  // what was captured in it
  }
  calls::CuCtxRecordEvent call;
  call.hCtx = context->id;
  call.hEvent = known->id;
  return send_in(context->id, call);
}

CUresult cuCtxWaitEvent(CUcontext handle, CUevent event) {
  std::shared_ptr<Context> context;
  if (const CUresult bad = find_context(handle, context); bad != CUDA_SUCCESS) return bad;
  calls::CuCtxWaitEvent call;
  call.hCtx = context->id;
  if (const CUresult bad = to_wire(HandleKind::event, event, call.hEvent); bad != CUDA_SUCCESS) {
    return bad;
  }
  if (graphs().watching()) {
    if (const Graphs::Verdict waits = graphs().context_waits(context->id)) return *waits;
    if (graphs().event_asked(event)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return send_in(context->id, call);
}

}  // namespace headrace::client::families
