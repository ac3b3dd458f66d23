// Multiplies the matrix that a file's bytes make with its own transpose (similarity of its rows),
// tile by tile through shared memory.
#include <algorithm>

#include "common.h"

constexpr int kTile = 16;
constexpr int kColumns = 200;  // no multiple of the tile, on purpose

// similarity = m m^T; m has `rows` rows and kColumns columns
__global__ void multiply(const float* m, float* similarity, int rows) {
  __shared__ float left[kTile][kTile];
  __shared__ float right[kTile][kTile + 1];
  const int row = blockIdx.y * kTile + threadIdx.y;
  const int column = blockIdx.x * kTile + threadIdx.x;
  const int other = blockIdx.x * kTile + threadIdx.y;
  float sum = 0;
  for (int start = 0; start < kColumns; start += kTile) {
    const int k = start + threadIdx.x;
    left[threadIdx.y][threadIdx.x] = row < rows && k < kColumns ? m[row * kColumns + k] : 0;
    right[threadIdx.y][threadIdx.x] = other < rows && k < kColumns ? m[other * kColumns + k] : 0;
    __syncthreads();
    for (int j = 0; j < kTile; ++j) sum += left[threadIdx.y][j] * right[threadIdx.x][j];
    __syncthreads();
  }
  if (row < rows && column < rows) similarity[row * rows + column] = sum;
}

int main(int argc, char** argv) {
  std::vector<float> numbers = input_numbers(argc, argv);
  const int rows = std::min(int(numbers.size() / kColumns), 500);
  numbers.resize(std::size_t(rows) * kColumns);
  for (float& number : numbers) number /= 255;
  std::vector<double> expected(std::size_t(rows) * rows);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < rows; ++j) {
      double sum = 0;
      for (int k = 0; k < kColumns; ++k) {
        sum += double(numbers[i * kColumns + k]) * numbers[j * kColumns + k];
      }
      expected[std::size_t(i) * rows + j] = sum;
    }
  }

  const Stopwatch watch;
  DeviceArray<float> matrix(numbers), similarity(expected.size());
  const dim3 grid((rows + kTile - 1) / kTile, (rows + kTile - 1) / kTile);
  multiply<<<grid, dim3(kTile, kTile)>>>(matrix.get(), similarity.get(), rows);
  CHECK(cudaGetLastError());
  const std::vector<float> result = similarity.read();
  // 200 products of numbers up to 1, summed in single precision
  return report("tiled matrix product (nvcc)", watch.seconds(),
                largest_difference(result, expected), 1e-3);
}
