// Adds the first half of a file's bytes to its second half, as numbers.
#include "common.h"

__global__ void add(const float* a, const float* b, float* sum, int count) {
  const int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k < count) sum[k] = a[k] + b[k];
}

int main(int argc, char** argv) {
  const std::vector<float> numbers = input_numbers(argc, argv);
  const int count = int(numbers.size() / 2);
  const std::vector<float> a(numbers.begin(), numbers.begin() + count);
  const std::vector<float> b(numbers.begin() + count, numbers.begin() + 2 * count);
  std::vector<float> expected(count);
  for (int k = 0; k < count; ++k) expected[k] = a[k] + b[k];

  const Stopwatch watch;
  DeviceArray<float> device_a(a), device_b(b), device_sum(count);
  add<<<(count + 255) / 256, 256>>>(device_a.get(), device_b.get(), device_sum.get(), count);
  CHECK(cudaGetLastError());
  const std::vector<float> sum = device_sum.read();
  return report("vector add (nvcc)", watch.seconds(), largest_difference(sum, expected), 0);
}
