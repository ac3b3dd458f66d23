#include "worker/later.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "worker/session.h"

namespace headrace::worker {

void Later::run(Call call, Then then) {
  run_in(session_.current(), std::move(call), std::move(then));
}

void Later::run_in(const SessionContext& context, Call call, Then then) {
  add({context.handle, session_.life(context.handle), context.context, std::move(call),
       std::move(then)});
}

void Later::run_anywhere(Call call, Then then) {
  add({0, 0, nullptr, std::move(call), std::move(then)});
}

void Later::add(Item item) {
  if (!session_.callbacks().outstanding() && !pending()) {
    const CUresult result = item.call();
    return item.then(result);
  }
  queue_.push_back(std::move(item));
  if (!running_) next();
}

void Later::afterwards(std::function<void()> then) {
  queue_.push_back(
      {0, 0, nullptr, [] { return CUDA_SUCCESS; }, [then = std::move(then)](CUresult) { then(); }});
  if (!running_) next();
}

void Later::next() {
  running_ = true;
  // Shared: what is run may be copied, what it holds need not.
  const std::shared_ptr<std::vector<Item>> batch =
      std::make_shared<std::vector<Item>>(std::exchange(queue_, {}));
  session_.pool().submit([this, batch]() -> WaiterPool::Completion {
    std::vector<CUresult> results;
    for (const Item& item : *batch) {
      if (item.native != nullptr) session_.driver().cuCtxSetCurrent(item.native);
      results.push_back(item.call());
    }
    return [this, batch, results] {
      running_ = false;
      for (std::size_t i = 0; i < batch->size(); ++i) {
        const Item& item = (*batch)[i];
        const bool ended = item.context != 0 && session_.life(item.context) != item.life;
        item.then(ended ? CUDA_SUCCESS : results[i]);
      }
      if (!running_ && !queue_.empty()) next();
    };
  });
}

void Later::drop_context(std::uint64_t context) {
  const auto gone = std::stable_partition(
      queue_.begin(), queue_.end(), [&](const Item& item) { return item.context != context; });
  std::vector<Item> dropped(std::make_move_iterator(gone), std::make_move_iterator(queue_.end()));
  queue_.erase(gone, queue_.end());
  for (const Item& item : dropped) item.then(CUDA_SUCCESS);
}

}  // namespace headrace::worker
