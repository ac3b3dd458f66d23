// Sums the squares of a file's bytes: shuffles inside warps, shared memory between them, and one
// atomic addition a block. Integers, so the sum has to be exact.
#include "common.h"

using Sum = unsigned long long;

__device__ Sum sum_of_warp(Sum value) {
  for (int step = warpSize / 2; step > 0; step /= 2) {
    value += __shfl_down_sync(0xffffffffu, value, step);
  }
  return value;
}

__global__ void sum_of_squares(const unsigned char* bytes, int count, Sum* total) {
  Sum value = 0;
  for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += blockDim.x * gridDim.x) {
    value += Sum(bytes[k]) * bytes[k];
  }
  __shared__ Sum of_warps[32];
  value = sum_of_warp(value);
  if (threadIdx.x % warpSize == 0) of_warps[threadIdx.x / warpSize] = value;
  __syncthreads();
  if (threadIdx.x < warpSize) {
    value = threadIdx.x < blockDim.x / warpSize ? of_warps[threadIdx.x] : 0;
    value = sum_of_warp(value);
    if (threadIdx.x == 0) atomicAdd(total, value);
  }
}

int main(int argc, char** argv) {
  const std::vector<unsigned char> bytes = input_bytes(argc, argv);
  Sum expected = 0;
  for (const unsigned char byte : bytes) expected += Sum(byte) * byte;

  const Stopwatch watch;
  DeviceArray<unsigned char> device_bytes(bytes);
  DeviceArray<Sum> total(1);
  CHECK(cudaMemset(total.get(), 0, total.bytes()));
  sum_of_squares<<<64, 256>>>(device_bytes.get(), int(bytes.size()), total.get());
  CHECK(cudaGetLastError());
  const std::vector<Sum> sum = total.read();
  return report("warp-shuffle reduction (nvcc)", watch.seconds(),
                largest_difference(sum, std::vector<Sum>{expected}), 0);
}
