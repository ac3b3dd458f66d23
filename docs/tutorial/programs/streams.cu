// Two streams work on the halves of a file's bytes; an event lets the second wait for what the
// first has made, and events take the time.
#include "common.h"

__global__ void running_mean(const float* in, float* out, int count, int width) {
  const int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k >= count) return;
  float sum = 0;
  for (int j = 0; j < width; ++j) sum += in[k + j < count ? k + j : count - 1];
  out[k] = sum / width;
}

__global__ void difference(const float* a, const float* b, float* out, int count) {
  const int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k < count) out[k] = a[k] - b[k];
}

constexpr int kWidth = 32;

std::vector<double> mean_on_cpu(const float* in, int count) {
  std::vector<double> out(count);
  for (int k = 0; k < count; ++k) {
    for (int j = 0; j < kWidth; ++j) out[k] += in[k + j < count ? k + j : count - 1];
    out[k] /= kWidth;
  }
  return out;
}

int main(int argc, char** argv) {
  const std::vector<float> numbers = input_numbers(argc, argv);
  const int count = int(numbers.size() / 2);
  std::vector<double> expected = mean_on_cpu(numbers.data(), count);
  const std::vector<double> second = mean_on_cpu(numbers.data() + count, count);
  for (int k = 0; k < count; ++k) expected[k] -= second[k];

  const Stopwatch watch;
  const std::size_t bytes = count * sizeof(float);
  float* pinned = nullptr;  // so that copies need not wait
  CHECK(cudaMallocHost(reinterpret_cast<void**>(&pinned), 3 * bytes));
  std::copy(numbers.begin(), numbers.begin() + 2 * count, pinned);
  cudaStream_t streams[2];
  cudaEvent_t start, stop, first_done;
  for (cudaStream_t& stream : streams) CHECK(cudaStreamCreate(&stream));
  for (cudaEvent_t* event : {&start, &stop, &first_done}) CHECK(cudaEventCreate(event));
  DeviceArray<float> in(2 * count), means(2 * count), result(count);
  const int blocks = (count + 255) / 256;

  CHECK(cudaEventRecord(start, streams[0]));
  for (int k = 0; k < 2; ++k) {
    CHECK(cudaMemcpyAsync(in.get() + k * count, pinned + k * count, bytes, cudaMemcpyHostToDevice,
                          streams[k]));
    running_mean<<<blocks, 256, 0, streams[k]>>>(in.get() + k * count, means.get() + k * count,
                                                 count, kWidth);
  }
  CHECK(cudaEventRecord(first_done, streams[0]));
  CHECK(cudaStreamWaitEvent(streams[1], first_done, 0));
  difference<<<blocks, 256, 0, streams[1]>>>(means.get(), means.get() + count, result.get(), count);
  CHECK(
      cudaMemcpyAsync(pinned + 2 * count, result.get(), bytes, cudaMemcpyDeviceToHost, streams[1]));
  CHECK(cudaEventRecord(stop, streams[1]));
  CHECK(cudaEventSynchronize(stop));
  CHECK(cudaGetLastError());
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, start, stop));
  const double seconds = watch.seconds();
  if (milliseconds < 0 || milliseconds > 1000 * seconds + 1) {
    std::fprintf(stderr, "the events say %g ms, the clock %g s\n", milliseconds, seconds);
    return 1;
  }

  const std::vector<float> got(pinned + 2 * count, pinned + 3 * count);
  const int status =
      report("two streams with events (nvcc)", seconds, largest_difference(got, expected), 1e-3);
  for (cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
  for (cudaEvent_t event : {start, stop, first_done}) CHECK(cudaEventDestroy(event));
  CHECK(cudaFreeHost(pinned));
  return status;
}
