// What the programs beside this file share: reading the input, checking calls, the last line.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#define CHECK(call)                                                           \
  do {                                                                        \
    const cudaError_t error_ = (call);                                        \
    if (error_ != cudaSuccess) {                                              \
      std::fprintf(stderr, "%s:%d: %s: %s (%s)\n", __FILE__, __LINE__, #call, \
                   cudaGetErrorName(error_), cudaGetErrorString(error_));     \
      std::exit(1);                                                           \
    }                                                                         \
  } while (0)

// The bytes of the file that the command line names.
inline std::vector<unsigned char> input_bytes(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FILE\n", argv[0]);
    std::exit(2);
  }
  std::ifstream file(argv[1], std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "%s: cannot read %s\n", argv[0], argv[1]);
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The same as numbers: 0 to 255.
inline std::vector<float> input_numbers(int argc, char** argv) {
  const std::vector<unsigned char> bytes = input_bytes(argc, argv);
  return {bytes.begin(), bytes.end()};
}

// Device memory that lives as long as this does.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    CHECK(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    CHECK(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* get() { return data_; }
  std::size_t bytes() const { return count_ * sizeof(T); }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    CHECK(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  std::size_t count_;
  T* data_ = nullptr;
};

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

template <typename A, typename B>
double largest_difference(const std::vector<A>& got, const std::vector<B>& expected) {
  if (got.size() != expected.size()) return INFINITY;
  double largest = 0;
  for (std::size_t k = 0; k < got.size(); ++k) {
    const double difference = std::fabs(double(got[k]) - double(expected[k]));
    if (!(difference <= largest)) largest = difference;  // NaN is kept
  }
  return largest;
}

// Prints the line that a program ends with; returns the program's exit status.
inline int report(const char* program, double seconds, double difference, double tolerance) {
  int runtime = 0;
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  CHECK(cudaRuntimeGetVersion(&runtime));
  const bool ok = difference <= tolerance;
  std::printf(
      "{\"program\": \"%s\", \"device\": \"%s\", \"seconds\": %.4f, \"max_difference\": %.17g, "
      "\"tolerance\": %g, \"ok\": %s, \"runtime\": \"%d.%d\"}\n",
      program, device.name, seconds, std::isfinite(difference) ? difference : 1e300, tolerance,
      ok ? "true" : "false", runtime / 1000, runtime % 1000 / 10);
  return ok ? 0 : 1;
}
