#include "softgpu/exec/cancel.h"

namespace headrace::softgpu {

CancelToken::CancelToken() : state_(std::make_unique<State>()) {}
CancelToken::~CancelToken() = default;

void CancelToken::cancel() noexcept {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->cancelled = true;
  for (exec::Job* job : state_->jobs) job->fail({.status = LaunchStatus::cancelled});
}

bool CancelToken::cancelled() const noexcept {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->cancelled;
}

namespace exec {

CancelScope::CancelScope(CancelToken* token, Job& job) : token_(token), job_(job) {
  if (token_ == nullptr) return;
  std::lock_guard<std::mutex> lock(token_->state()->mutex);
  token_->state()->jobs.push_back(&job_);
  if (token_->state()->cancelled) job_.fail({.status = LaunchStatus::cancelled});
}

CancelScope::~CancelScope() {
  if (token_ == nullptr) return;
  std::lock_guard<std::mutex> lock(token_->state()->mutex);
  std::erase(token_->state()->jobs, &job_);
}

}  // namespace exec
}  // namespace headrace::softgpu
