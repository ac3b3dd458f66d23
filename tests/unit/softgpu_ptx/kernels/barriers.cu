// Barriers that count arrivals, through the toolkit's headers.
#include <cuda_awbarrier.h>
#include <cuda_pipeline.h>
using namespace nvcuda::experimental;

extern "C" __global__ void by_barrier(const int* in, int* out) {
  __shared__ awbarrier barrier;
  __shared__ int words[128];
  const int i = threadIdx.x, base = blockIdx.x * 128;
  if (i == 0) init(&barrier, 128);
  __syncthreads();
  words[i] = in[base + i];
  awbarrier::arrival_token token = barrier.arrive();
  barrier.wait(std::move(token));
  int value = words[127 - i];
  barrier.arrive_and_wait();
  words[i] = value + 1;
  barrier.arrive_and_wait();
  out[base + i] = words[i];
}

extern "C" __global__ void by_pipeline(const int* in, int* out) {
  __shared__ __mbarrier_t barrier;
  __shared__ int words[128];
  const int i = threadIdx.x, base = blockIdx.x * 128;
  if (i == 0) __mbarrier_init(&barrier, 128);
  __syncthreads();
  __pipeline_memcpy_async(&words[i], &in[base + i], 4);
  __pipeline_arrive_on(&barrier);
  __mbarrier_token_t token = __mbarrier_arrive(&barrier);
  while (!__mbarrier_test_wait(&barrier, token)) {
  }
  out[base + i] = words[127 - i] + 1;
}
