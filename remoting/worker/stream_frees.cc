#include "worker/stream_frees.h"

#include <utility>
#include <vector>

#include "worker/session.h"

namespace headrace::worker {

void StreamFrees::add(CUstream stream, const Allocation& freed) {
  settle();
  const std::uint64_t context = session_.current().handle;
  CUevent mark = nullptr;
  if (session_.marks().record(context, stream, mark) != CUDA_SUCCESS) {
    return session_.memory().give_back(freed.device, freed.charged);
  }
  streams_[{context, stream}].push_back({mark, freed.charged, freed.device});
}

void StreamFrees::give_back(std::uint64_t context, const Freed& freed) {
  session_.memory().give_back(freed.device, freed.charged);
  session_.marks().recycle(context, freed.mark);
}

void StreamFrees::settle() {
  for (auto at = streams_.begin(); at != streams_.end();) {
    auto& [key, waiting] = *at;
    while (!waiting.empty() &&
           session_.driver().cuEventQuery(waiting.front().mark) != CUDA_ERROR_NOT_READY) {
      give_back(key.context, waiting.front());
      waiting.pop_front();
    }
    at = waiting.empty() ? streams_.erase(at) : std::next(at);
  }
}

void StreamFrees::reuse(CUstream stream, unsigned device, std::uint64_t bytes) {
  const auto found = streams_.find({session_.current().handle, stream});
  if (found == streams_.end()) return;
  std::uint64_t given = 0;
  std::deque<Freed>& waiting = found->second;
  while (!waiting.empty() && given < bytes) {
    if (waiting.front().device == device) given += waiting.front().charged;
    give_back(found->first.context, waiting.front());
    waiting.pop_front();
  }
  if (waiting.empty()) streams_.erase(found);
}

void StreamFrees::afterwards(std::function<void()> then) {
  struct Last {
    std::uint64_t context;
    CUcontext native;
    CUevent mark;
  };
  std::vector<Last> last;
  for (const auto& [key, waiting] : streams_) {
    const SessionContext* context = session_.find_context(key.context);
    if (context != nullptr) last.push_back({key.context, context->context, waiting.back().mark});
  }
  session_.pool().submit([this, last, then = std::move(then)]() -> WaiterPool::Completion {
    for (const Last& one : last) {
      session_.driver().cuCtxSetCurrent(one.native);
      session_.driver().cuEventSynchronize(one.mark);
    }
    return [this, then] {
      settle();
      then();
    };
  });
}

void StreamFrees::drop_context(std::uint64_t context) {
  for (auto at = streams_.begin(); at != streams_.end();) {
    if (at->first.context != context) {
      ++at;
      continue;
    }
    for (const Freed& one : at->second) session_.memory().give_back(one.device, one.charged);
    at = streams_.erase(at);
  }
}

}  // namespace headrace::worker
