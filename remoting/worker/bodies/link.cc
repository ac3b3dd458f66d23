// The linker (apispec/link.toml): inputs come as blobs, the image goes back in frames with MORE.
#include <algorithm>
#include <memory>
#include <string>

#include "worker/bodies/bodies.h"
#include "worker/bodies/image_bounds.h"
#include "worker/bodies/jit.h"

namespace headrace::worker::bodies {
namespace {

constexpr std::size_t piece = 1'000'000;

// The driver may write logs of the whole link until it is destroyed, so they live with it.
struct LinkOptions {
  JitOptions jit;
};

}  // namespace

CUresult cuLinkCreate_v2(Session& session, const calls::CuLinkCreate_v2& call) {
  std::shared_ptr<LinkOptions> options = std::make_shared<LinkOptions>();
  if (!options->jit.read(call.jit)) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  CUlinkState state = nullptr;
  CUresult result = HEADRACE_DRIVER_CALL(session, cuLinkCreate_v2, options->jit.count(),
                                         options->jit.options(), options->jit.values(), &state);
  if (result != CUDA_SUCCESS) return result;
  result = session.adopt(HandleKind::link_state, call.stateOut, state);
  if (result == CUDA_SUCCESS) {
    session.attach(call.stateOut, options);
  } else {
    session.driver().cuLinkDestroy(state);
  }
  return result;
}

std::optional<CUresult> cuLinkAddData_v2(Session& session, std::uint32_t number,
                                         const calls::CuLinkAddData_v2& call) {
  struct Input {
    Blob blob;
    JitOptions jit;
    std::string name;
  };
  std::shared_ptr<Input> input = std::make_shared<Input>();
  if (!session.blobs().take(call.blob, input->blob)) return CUDA_ERROR_INVALID_HANDLE;
  CUlinkState state = nullptr;
  if (!session.find(HandleKind::link_state, call.state, state)) return CUDA_ERROR_INVALID_HANDLE;
  if (!input->jit.read(call.jit)) return CUDA_ERROR_INVALID_VALUE;
  if (!image_within(input->blob.data.get(), input->blob.size)) return CUDA_ERROR_INVALID_IMAGE;
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  input->name = call.name;
  // PTX is text, and its size includes the zero byte that ends it.
  const CUjitInputType type = static_cast<CUjitInputType>(call.type);
  const std::size_t size = input->blob.size + (type == CU_JIT_INPUT_PTX ? 1 : 0);
  session.pool().submit([&session, input, number, state, type, size,
                         native = session.current().context,
                         options = session.attached(call.state)]() -> WaiterPool::Completion {
    session.driver().cuCtxSetCurrent(native);
    const CUresult done = session.driver().cuLinkAddData_v2(
        state, type, input->blob.data.get(), size, input->name.c_str(), input->jit.count(),
        input->jit.options(), input->jit.values());
    const std::vector<std::uint8_t> reason = last_refusal(session.driver());
    return [&session, input, options, number, done, reason] {
      calls::CuLinkAddData_v2Reply reply;
      input->jit.tell(done, reason, reply);
      if (input->jit.count() == 0 && options != nullptr) {
        static_cast<LinkOptions*>(options.get())->jit.tell(done, reason, reply);
      }
      session.answer({calls::CuLinkAddData_v2::kType, number}, CUDA_SUCCESS, reply);
    };
  });
  return std::nullopt;
}

std::optional<CUresult> cuLinkComplete(Session& session, std::uint32_t number,
                                       const calls::CuLinkComplete& call) {
  CUlinkState state = nullptr;
  if (!session.find(HandleKind::link_state, call.state, state)) return CUDA_ERROR_INVALID_HANDLE;
  if (number == 0) return CUDA_ERROR_INVALID_VALUE;  // the image is the answer
  if (CUresult result = session.enter(); result != CUDA_SUCCESS) return result;
  session.pool().submit([&session, number, state, handle = call.state,
                         native = session.current().context,
                         options = session.attached(call.state)]() -> WaiterPool::Completion {
    session.driver().cuCtxSetCurrent(native);
    void* image = nullptr;
    std::size_t size = 0;
    const CUresult done = session.driver().cuLinkComplete(state, &image, &size);
    const std::vector<std::uint8_t> reason = last_refusal(session.driver());
    return [&session, number, state, handle, options, image, size, done, reason] {
      // The image belongs to the link state, which a later frame may have ended meanwhile.
      CUlinkState now = nullptr;
      const bool alive = session.find(HandleKind::link_state, handle, now) && now == state;
      const CUresult result = alive ? done : CUDA_ERROR_INVALID_HANDLE;
      const std::uint8_t* from = static_cast<const std::uint8_t*>(image);
      for (std::size_t sent = 0; result == CUDA_SUCCESS && sent < size; sent += piece) {
        FrameWriter& out = session.out();
        const std::size_t place =
            out.begin(calls::CuLinkComplete::kType, flag_reply | flag_more, number);
        out.out().raw(from + sent, std::min(piece, size - sent));
        out.end(place);
      }
      calls::CuLinkCompleteReply reply;
      if (options != nullptr)
        static_cast<LinkOptions*>(options.get())->jit.tell(result, reason, reply);
      reply.load_result = result;
      session.answer({calls::CuLinkComplete::kType, number}, CUDA_SUCCESS, reply);
    };
  });
  return std::nullopt;
}

}  // namespace headrace::worker::bodies
