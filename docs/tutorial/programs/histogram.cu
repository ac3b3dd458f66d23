// Counts how often each byte occurs in a file: atomic additions in shared memory, then in global.
#include "common.h"

__global__ void count_bytes(const unsigned char* bytes, int count, unsigned* histogram) {
  __shared__ unsigned mine[256];
  for (int k = threadIdx.x; k < 256; k += blockDim.x) mine[k] = 0;
  __syncthreads();
  for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += blockDim.x * gridDim.x) {
    atomicAdd(&mine[bytes[k]], 1u);
  }
  __syncthreads();
  for (int k = threadIdx.x; k < 256; k += blockDim.x) atomicAdd(&histogram[k], mine[k]);
}

int main(int argc, char** argv) {
  const std::vector<unsigned char> bytes = input_bytes(argc, argv);
  std::vector<unsigned> expected(256);
  for (const unsigned char byte : bytes) ++expected[byte];

  const Stopwatch watch;
  DeviceArray<unsigned char> device_bytes(bytes);
  DeviceArray<unsigned> histogram(256);
  CHECK(cudaMemset(histogram.get(), 0, histogram.bytes()));
  count_bytes<<<32, 128>>>(device_bytes.get(), int(bytes.size()), histogram.get());
  CHECK(cudaGetLastError());
  const std::vector<unsigned> counts = histogram.read();
  return report("histogram with atomics (nvcc)", watch.seconds(),
                largest_difference(counts, expected), 0);
}
