// Contexts: which one is current is known here alone; what makes or ends one is carried.
#include <memory>

#include "client/captures.h"
#include "client/contexts.h"
#include "client/process.h"
#include "client/remote.h"
#include "client/thread_state.h"
#include "gen/client_families.h"

namespace headrace::client::families {
namespace {

constexpr unsigned known_flags = CU_CTX_FLAGS_MASK;

// A context argument for which null means the current one.
CUresult context_or_current(CUcontext handle, Context*& context) {
  if (handle == nullptr) return enter_context(context);
  if (const CUresult state = library_state(); state != CUDA_SUCCESS) return state;
  context = find_context(handle);
  return context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

// The calling thread's current context, in whatever state it is.
CUresult current_context(Context*& context) {
  if (const CUresult state = library_state(); state != CUDA_SUCCESS) return state;
  const ThreadState& thread = ThreadState::of_this_thread();
  if (thread.contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  context = thread.contexts.back();
  return CUDA_SUCCESS;
}

}  // namespace

// ---------------------------------------------------------------- creation and end

CUresult cuCtxCreate_v4(CUcontext* out, CUctxCreateParams* params, unsigned int flags,
                        CUdevice ordinal) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  Process& here = process();
  Device* const device = here.device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (out == nullptr || (flags & ~known_flags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (params != nullptr && params->numExecAffinityParams != 0) {
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  }
  if (params != nullptr && params->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  calls::CuCtxCreate_v4 call;
  call.pctx = here.handles.make(HandleKind::context);
  call.flags = flags;
  call.dev = device->wire_ordinal;
  calls::CuCtxCreate_v4::Reply reply;
  if (const CUresult result = trip_in(0, call, reply).told(); result != CUDA_SUCCESS) return result;
  const std::shared_ptr<Context> context =
      std::make_shared<Context>(call.pctx, device, /*is_primary=*/false);
  context->flags = flags;
  context->alive = true;
  here.contexts.insert(call.pctx, context);
  ThreadState::of_this_thread().contexts.push_back(context.get());
  *out = context->handle();
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam*, int affinity_count,
                        unsigned int flags, CUdevice ordinal) {
  if (affinity_count != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return families::cuCtxCreate_v4(out, nullptr, flags, ordinal);
}

CUresult cuCtxCreate_v2(CUcontext* out, unsigned int flags, CUdevice ordinal) {
  return families::cuCtxCreate_v4(out, nullptr, flags, ordinal);
}

CUresult cuCtxDestroy_v2(CUcontext handle) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  Context* const context = find_context(handle);
  if (context == nullptr || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  // Of two threads that destroy it one wins.
  bool alive = true;
  if (!context->alive.compare_exchange_strong(alive, false)) return CUDA_ERROR_INVALID_CONTEXT;
  ThreadState& thread = ThreadState::of_this_thread();
  if (!thread.contexts.empty() && thread.contexts.back() == context) thread.contexts.pop_back();
  forget_contents(*context);
  calls::CuCtxDestroy_v2 call;
  call.ctx = context->id;
  calls::CuCtxDestroy_v2::Reply reply;
  // An error that had destroyed the context has been told, or dies with it.
  return trip_in(0, call, reply).told() == connection_lost_error ? connection_lost_error
                                                                 : CUDA_SUCCESS;
}

CUresult cuCtxAttach(CUcontext* out, unsigned int flags) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  context->attachments.fetch_add(1);
  *out = context->handle();
  return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext handle) {
  Context* context = nullptr;
  if (const CUresult state = context_or_current(handle, context); state != CUDA_SUCCESS) {
    return state;
  }
  if (context->attachments.fetch_sub(1) > 0) return CUDA_SUCCESS;
  context->attachments.store(0);
  return families::cuCtxDestroy_v2(context->handle());
}

// ---------------------------------------------------------------- the current context

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
  if (const CUresult state = library_state(); state != CUDA_SUCCESS) return state;
  Context* const context = find_context(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  ThreadState::of_this_thread().contexts.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* out) {
  Context* context = nullptr;
  if (const CUresult state = current_context(context); state != CUDA_SUCCESS) return state;
  ThreadState::of_this_thread().contexts.pop_back();
  if (out != nullptr) *out = context->handle();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  if (const CUresult state = library_state(); state != CUDA_SUCCESS) return state;
  ThreadState& thread = ThreadState::of_this_thread();
  Context* context = nullptr;
  if (handle != nullptr) {
    context = find_context(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (!thread.contexts.empty()) thread.contexts.pop_back();
  if (context != nullptr) thread.contexts.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* out) {
  if (const CUresult state = library_state(); state != CUDA_SUCCESS) return state;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ThreadState& thread = ThreadState::of_this_thread();
  *out = thread.contexts.empty() ? nullptr : thread.contexts.back()->handle();
  return CUDA_SUCCESS;
}

// ---------------------------------------------------------------- questions

CUresult cuCtxGetDevice(CUdevice* device) {
  Context* context = nullptr;
  if (const CUresult state = current_context(context); state != CUDA_SUCCESS) return state;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
  if (handle == nullptr) return families::cuCtxGetDevice(device);
  Context* context = nullptr;
  if (const CUresult state = context_or_current(handle, context); state != CUDA_SUCCESS) {
    return state;
  }
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  Context* context = nullptr;
  if (const CUresult state = current_context(context); state != CUDA_SUCCESS) return state;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags.load();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
  Context* context = nullptr;
  if (const CUresult state = current_context(context); state != CUDA_SUCCESS) return state;
  if ((flags & ~known_flags) != 0) return CUDA_ERROR_INVALID_VALUE;
  context->flags.store(flags);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  Context* context = nullptr;
  if (const CUresult state = context_or_current(handle, context); state != CUDA_SUCCESS) {
    return state;
  }
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = handle_serial(context->id);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
  Context* context = nullptr;
  if (const CUresult state = context_or_current(handle, context); state != CUDA_SUCCESS) {
    return state;
  }
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = context->api_version;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  Context* context = nullptr;
  if (const CUresult state = current_context(context); state != CUDA_SUCCESS) return state;
  if (least != nullptr) *least = context->device->priority_least;
  if (greatest != nullptr) *greatest = context->device->priority_greatest;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam*, CUexecAffinityType) {
  Context* context = nullptr;
  if (const CUresult state = current_context(context); state != CUDA_SUCCESS) return state;
  return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

// Preferences: kept and told back. The server's functions choose for themselves.

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  Context* context = nullptr;
  if (const CUresult state = current_context(context); state != CUDA_SUCCESS) return state;
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = static_cast<CUfunc_cache>(context->cache_config.load());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  Context* context = nullptr;
  if (const CUresult state = current_context(context); state != CUDA_SUCCESS) return state;
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  context->cache_config.store(config);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* config) {
  Context* context = nullptr;
  if (const CUresult state = current_context(context); state != CUDA_SUCCESS) return state;
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = static_cast<CUsharedconfig>(context->shared_config.load());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  Context* context = nullptr;
  if (const CUresult state = current_context(context); state != CUDA_SUCCESS) return state;
  context->shared_config.store(config);
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (const Graphs::Verdict upset = capture_forbids_waiting(current_context_id())) return *upset;
  const calls::CuCtxSynchronize call;
  calls::CuCtxSynchronize::Reply reply;
  return trip(call, reply);
}

}  // namespace headrace::client::families
