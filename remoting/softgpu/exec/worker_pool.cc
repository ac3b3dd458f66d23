#include "softgpu/exec/worker_pool.h"

#include <pthread.h>

#include <algorithm>
#include <csignal>

namespace headrace::softgpu::exec {

void WorkerPool::execute(Job& job) {
  Offer offer{&job, std::min(job.helpers(), wanted_threads_), 0};
  if (offer.open != 0) {
    std::lock_guard<std::mutex> lock(mutex_);
    start_threads(offer.open);
    offers_.push_back(&offer);
    for (unsigned i = 0; i < offer.open; ++i) offered_.notify_one();
  }
  job.work();
  if (job.helpers() == 0) return;
  // No helper may join any more; those inside finish their last chunk.
  std::unique_lock<std::mutex> lock(mutex_);
  std::erase(offers_, &offer);
  left_.wait(lock, [&offer] { return offer.inside == 0; });
}

// Under mutex_. Threads are started one by one up to what launches could use. That some cannot
// be started is no error: the caller does the work.
void WorkerPool::start_threads(unsigned count) {
  // The pool's threads take no signals of the program; FaultScope unblocks the faults.
  sigset_t all, previous;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  while (threads_ < count && !failed_to_start_) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, &WorkerPool::thread_main, this) != 0) {
      failed_to_start_ = true;
      break;
    }
    pthread_detach(thread);
    ++threads_;
  }
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
}

void* WorkerPool::thread_main(void* pool) {
  pthread_setname_np(pthread_self(), "softgpu-worker");
  static_cast<WorkerPool*>(pool)->serve();
  return nullptr;
}

void WorkerPool::serve() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    offered_.wait(lock, [this] { return !offers_.empty(); });
    Offer* offer = offers_.front();
    ++offer->inside;
    if (--offer->open == 0) offers_.pop_front();
    lock.unlock();
    offer->job->work();
    lock.lock();
    if (--offer->inside == 0) left_.notify_all();
  }
}

}  // namespace headrace::softgpu::exec
