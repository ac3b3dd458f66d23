// The inside of CancelToken: which jobs it must stop.
#pragma once

#include <mutex>
#include <vector>

#include "softgpu/exec/job.h"

namespace headrace::softgpu {

struct CancelToken::State {
  std::mutex mutex;
  bool cancelled = false;
  std::vector<exec::Job*> jobs;
};

namespace exec {

// Ties a job to a token (or to none) for the lifetime of the scope.
class CancelScope {
 public:
  CancelScope(CancelToken* token, Job& job);
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

 private:
  CancelToken* token_;
  Job& job_;
};

}  // namespace exec
}  // namespace headrace::softgpu
