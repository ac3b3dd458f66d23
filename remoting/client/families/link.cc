// The linker: inputs are uploaded, the linked image comes back.
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/images.h"
#include "client/jit_options.h"
#include "client/process.h"
#include "client/remote.h"
#include "gen/client_families.h"

namespace headrace::client {

// The program's buffers for logs are named when the state is made, and filled as it goes on.
struct LinkState {
  std::uint64_t id = 0;
  Context* context = nullptr;
  JitOptions options;
  std::vector<std::uint8_t> image;  // what cuLinkComplete gave out: lives until cuLinkDestroy
};

}  // namespace headrace::client

namespace headrace::client::families {
namespace {

constexpr std::size_t max_linked = std::size_t{1} << 30;

std::shared_ptr<LinkState> find_state(CUlinkState handle) {
  return process().links.find(reinterpret_cast<std::uint64_t>(handle));
}

template <typename Reply>
CUresult finish_step(LinkState& state, const TripResult& outcome, const Reply& reply) {
  if (outcome.told() != CUDA_SUCCESS) return outcome.told();
  state.options.write_back(reply.info_log, reply.error_log, reply.wall_time);
  log_refusal("link", reply.error_log);
  return static_cast<CUresult>(reply.load_result);
}

CUresult add(CUlinkState handle, CUjitInputType type, std::span<const std::uint8_t> data,
             const char* name, unsigned count, CUjit_option* options, void** values) {
  const std::shared_ptr<LinkState> state = find_state(handle);
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (data.empty()) return CUDA_ERROR_INVALID_VALUE;
  JitOptions own;
  if (const CUresult bad = own.read(count, options, values); bad != CUDA_SUCCESS) return bad;
  calls::CuLinkAddData_v2 call;
  call.state = state->id;
  call.type = type;
  call.name = name != nullptr ? name : "";
  call.jit = own.wire();
  if (const CUresult bad = upload_blob(data, call.blob); bad != CUDA_SUCCESS) return bad;
  calls::CuLinkAddData_v2::Reply reply;
  return finish_step(*state, trip_in(state->context->id, call, reply), reply);
}

}  // namespace

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option* options, void** values,
                         CUlinkState* out) {
  Context* context = nullptr;
  if (const CUresult state = enter_context(context); state != CUDA_SUCCESS) return state;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<LinkState> state = std::make_shared<LinkState>();
  if (const CUresult bad = state->options.read(count, options, values); bad != CUDA_SUCCESS) {
    return bad;
  }
  calls::CuLinkCreate_v2 call;
  call.stateOut = process().handles.make(HandleKind::link_state);
  call.jit = state->options.wire();
  calls::CuLinkCreate_v2::Reply reply;
  const CUresult result = trip_in(context->id, call, reply).told();
  if (result != CUDA_SUCCESS) return result;
  state->id = call.stateOut;
  state->context = context;
  process().links.insert(state->id, state);
  *out = reinterpret_cast<CUlinkState>(state->id);
  return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void* data, std::size_t size,
                          const char* name, unsigned int count, CUjit_option* options,
                          void** values) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add(handle, type, {static_cast<const std::uint8_t*>(data), size}, name, count, options,
             values);
}

CUresult cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char* path,
                          unsigned int count, CUjit_option* options, void** values) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  std::vector<std::uint8_t> content;
  if (const CUresult bad = read_file(path, content); bad != CUDA_SUCCESS) return bad;
  if (type == CU_JIT_INPUT_PTX) content.push_back(0);
  return add(handle, type, content, path, count, options, values);
}

CUresult cuLinkComplete(CUlinkState handle, void** image, std::size_t* size) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  const std::shared_ptr<LinkState> state = find_state(handle);
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  calls::CuLinkComplete call;
  call.state = state->id;
  calls::CuLinkComplete::Reply reply;
  state->image.clear();
  const TripResult outcome =
      trip_growing(state->context->id, call, reply, state->image, max_linked);
  const CUresult result = finish_step(*state, outcome, reply);
  if (result != CUDA_SUCCESS) return result;
  if (size != nullptr) *size = state->image.size();
  // A load call reads text up to a zero, also where the linker gave text without one.
  state->image.push_back(0);
  *image = state->image.data();
  return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState handle) {
  if (const CUresult state = enter(); state != CUDA_SUCCESS) return state;
  const std::shared_ptr<LinkState> state =
      process().links.take(reinterpret_cast<std::uint64_t>(handle));
  if (state == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  calls::CuLinkDestroy call;
  call.state = state->id;
  return send_in(state->context->id, call);
}

}  // namespace headrace::client::families
