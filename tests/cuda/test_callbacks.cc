// Functions of the program that a stream runs.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/cuda/driver.h"

namespace {

// A function that a stream stops at until it is let go.
class Gate {
 public:
  ~Gate() { open(); }
  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait_until_reached() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
  }
  static void CUDA_CB stop(void* user) {
    Gate& gate = *static_cast<Gate*>(user);
    std::unique_lock<std::mutex> lock(gate.mutex_);
    gate.reached_ = true;
    gate.changed_.notify_all();
    gate.changed_.wait(lock, [&gate] { return gate.open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  bool open_ = false;
};

struct Counter {
  std::atomic<unsigned> next{0};
  std::atomic<bool> ordered{true};
};
struct Turn {
  Counter* counter;
  unsigned number;
};

void CUDA_CB take_turn(void* user) {
  const Turn& turn = *static_cast<Turn*>(user);
  if (turn.counter->next.fetch_add(1) != turn.number) turn.counter->ordered = false;
}

std::vector<Turn> turns_of(Counter& counter, unsigned count) {
  std::vector<Turn> turns(count);
  for (unsigned i = 0; i < count; ++i) turns[i] = {&counter, i};
  return turns;
}

std::uint32_t value_on(CUstream stream, CUdeviceptr memory) {
  std::uint32_t value = 0;
  CU_OK(cu.cuMemcpyDtoHAsync_v2(&value, memory, 4, stream));
  CU_OK(cu.cuStreamSynchronize(stream));
  return value;
}

}  // namespace

TEST_SUITE("callbacks") {
  TEST_CASE("a function holds its stream, and nothing else") {
    Primary primary;
    Buffer memory(4);
    CUstream held = make_stream(CU_STREAM_NON_BLOCKING);
    CUstream other = make_stream(CU_STREAM_NON_BLOCKING);
    CUevent behind = nullptr;
    CU_OK(cu.cuEventCreate(&behind, CU_EVENT_DISABLE_TIMING));
    CU_OK(cu.cuMemsetD32Async(memory, 1, 1, other));
    CU_OK(cu.cuStreamSynchronize(other));
    Gate gate;
    CU_OK(cu.cuLaunchHostFunc(held, Gate::stop, &gate));  // returns though the function does not
    CU_OK(cu.cuMemsetD32Async(memory, 2, 1, held));
    CU_OK(cu.cuEventRecord(behind, held));
    gate.wait_until_reached();
    CU_IS(CUDA_ERROR_NOT_READY, cu.cuStreamQuery(held));
    CU_IS(CUDA_ERROR_NOT_READY, cu.cuEventQuery(behind));
    CHECK(value_on(other, memory) == 1);
    CUdeviceptr more = 0;
    CU_OK(cu.cuMemAlloc_v2(&more, 4096));
    gate.open();
    CU_OK(cu.cuStreamWaitEvent(other, behind, 0));
    CHECK(value_on(other, memory) == 2);
    CU_OK(cu.cuMemFree_v2(more));
    CU_OK(cu.cuEventDestroy_v2(behind));
    CU_OK(cu.cuStreamDestroy_v2(held));
    CU_OK(cu.cuStreamDestroy_v2(other));
  }

  TEST_CASE("functions of a stream run in order, once each") {
    Primary primary;
    constexpr unsigned kCount = 2000;
    Counter counter;
    std::vector<Turn> turns = turns_of(counter, kCount);
    CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
    for (Turn& turn : turns) CU_OK(cu.cuLaunchHostFunc(stream, take_turn, &turn));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(counter.next == kCount);
    CHECK(counter.ordered);
    CU_OK(cu.cuStreamDestroy_v2(stream));
  }

  TEST_CASE("what waits behind a function that does not return does not stop the rest") {
    Primary primary;
    constexpr unsigned kCount = 3000;  // more than drivers keep of a stream
    Counter counter;
    std::vector<Turn> turns = turns_of(counter, kCount);
    Buffer memory(4);
    CUstream held = make_stream(CU_STREAM_NON_BLOCKING);
    CUstream other = make_stream(CU_STREAM_NON_BLOCKING);
    Gate gate;
    CU_OK(cu.cuLaunchHostFunc(held, Gate::stop, &gate));
    std::atomic<CUresult> failure{CUDA_SUCCESS};
    std::thread feeder([&] {
      CUresult result = cu.cuCtxSetCurrent(primary.context);
      for (unsigned i = 0; i < kCount && result == CUDA_SUCCESS; ++i) {
        result = cu.cuLaunchHostFunc(held, take_turn, &turns[i]);
        if (result == CUDA_SUCCESS) result = cu.cuMemsetD32Async(memory, i, 1, held);
      }
      failure = result;
    });
    gate.wait_until_reached();
    std::size_t free = 0, total = 0;
    for (int i = 0; i < 50; ++i) {
      CU_OK(cu.cuStreamSynchronize(other));
      CU_OK(cu.cuMemGetInfo_v2(&free, &total));
    }
    CHECK(counter.next == 0);
    gate.open();
    feeder.join();
    CU_IS(CUDA_SUCCESS, failure.load());
    CHECK(value_on(held, memory) == kCount - 1);
    CHECK(counter.next == kCount);
    CHECK(counter.ordered);
    CU_OK(cu.cuStreamDestroy_v2(held));
    CU_OK(cu.cuStreamDestroy_v2(other));
  }

  TEST_CASE("memory can be freed while a function runs") {
    Primary primary;
    CUdeviceptr memory = 0;
    CU_OK(cu.cuMemAlloc_v2(&memory, 1 << 20));
    CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
    Gate gate;
    CU_OK(cu.cuLaunchHostFunc(stream, Gate::stop, &gate));
    CU_OK(cu.cuMemsetD8Async(memory, 1, 1 << 20, stream));
    gate.wait_until_reached();
    std::thread opener([&gate] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      gate.open();
    });
    CU_OK(cu.cuMemFree_v2(memory));  // may wait for the stream
    opener.join();
    CU_OK(cu.cuStreamSynchronize(stream));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(memory));
    CU_OK(cu.cuStreamDestroy_v2(stream));
  }

  TEST_CASE("CUDA is not permitted inside a function") {
    Primary primary;
    CUstream stream = make_stream();
    struct Tried {
      CUresult results[4] = {};
    } tried;
    auto try_all = [](void* user) {
      CUdeviceptr memory = 0;
      int count = 0;
      CUcontext context = nullptr;
      Tried& all = *static_cast<Tried*>(user);
      all.results[0] = cu.cuMemAlloc_v2(&memory, 16);
      all.results[1] = cu.cuDeviceGetCount(&count);
      all.results[2] = cu.cuCtxGetCurrent(&context);
      all.results[3] = cu.cuStreamQuery(nullptr);
    };
    CU_OK(cu.cuLaunchHostFunc(stream, try_all, &tried));
    CU_OK(cu.cuStreamSynchronize(stream));
    for (CUresult result : tried.results) CU_IS(CUDA_ERROR_NOT_PERMITTED, result);
    CU_OK(cu.cuStreamDestroy_v2(stream));
  }

  TEST_CASE("host nodes of a graph take their turn, at each launch") {
    Primary primary;
    Buffer memory(4);
    Counter counter;
    std::vector<Turn> turns = turns_of(counter, 6);
    CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    for (unsigned first : {0u, 3u}) {
      CU_OK(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
      CU_OK(cu.cuLaunchHostFunc(stream, take_turn, &turns[first]));
      CU_OK(cu.cuMemsetD32Async(memory, first + 1, 1, stream));
      CU_OK(cu.cuLaunchHostFunc(stream, take_turn, &turns[first + 1]));
      CU_OK(cu.cuLaunchHostFunc(stream, take_turn, &turns[first + 2]));
      CU_OK(cu.cuStreamEndCapture(stream, &graph));
      CU_OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
      CHECK(counter.next == first);  // not at the capture
      CU_OK(cu.cuGraphLaunch(exec, stream));
      CU_OK(cu.cuStreamSynchronize(stream));
      CHECK(value_on(stream, memory) == first + 1);
      CU_OK(cu.cuGraphExecDestroy(exec));
      CU_OK(cu.cuGraphDestroy(graph));
    }
    CHECK(counter.next == 6);
    CHECK(counter.ordered);
    CU_OK(cu.cuStreamDestroy_v2(stream));
  }

  TEST_CASE("what is wrong is refused at the call") {
    Primary primary;
    CUstream stream = make_stream(), gone = make_stream();
    CU_OK(cu.cuStreamDestroy_v2(gone));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuLaunchHostFunc(stream, nullptr, nullptr));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuStreamAddCallback(stream, nullptr, nullptr, 0));
    Counter counter;
    Turn turn{&counter, 0};
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu.cuStreamAddCallback(
                                        stream, [](CUstream, CUresult, void*) {}, &turn, 1));
    CU_OK(cu.cuStreamDestroy_v2(stream));
  }

  TEST_CASE("a callback is told of the failure, a host function does not run after it") {
    CHECK(run_child("callbacks_after_a_failure") == 0);
  }

  TEST_CASE("functions end with their context, and the process with its functions") {
    CHECK(run_child("end_with_functions") == 0);
  }
}
