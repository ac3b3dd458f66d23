// The driver API as these tests see it: functions found by their exported (versioned) names in
// whatever libcuda.so.1 the loader finds. So one program checks the software GPU, the client
// library and NVIDIA's driver alike.
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL  // keeps cuda.h from renaming functions by macro
#endif
#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/cuda/functions.h"

// The one table, filled before the first test runs.
struct Driver {
#define DRIVER_MEMBER(name) decltype(&::name) name = nullptr;
  DRIVER_FUNCTIONS(DRIVER_MEMBER)
#undef DRIVER_MEMBER
};
extern Driver cu;

// Empty when everything was found; otherwise one line that says what is missing.
std::string load_driver();

// "CUDA_ERROR_INVALID_VALUE (1)".
std::string name_of(CUresult result);

#define CU_IS(expected, call)                                                             \
  do {                                                                                    \
    CUresult result_ = (call);                                                            \
    CHECK_MESSAGE(result_ == (expected), #call " gave ", name_of(result_), ", expected ", \
                  name_of(expected));                                                     \
  } while (0)
#define CU_OK(call)                                                             \
  do {                                                                          \
    CUresult result_ = (call);                                                  \
    REQUIRE_MESSAGE(result_ == CUDA_SUCCESS, #call " gave ", name_of(result_)); \
  } while (0)

// Device 0's primary context, current while the object lives.
class Primary {
 public:
  Primary();
  ~Primary();
  CUdevice device = 0;
  CUcontext context = nullptr;
};

// Device memory for the length of a test.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  operator CUdeviceptr() const { return address_; }

 private:
  CUdeviceptr address_ = 0;
};

// The test module of kernels.h, loaded once in the primary context that is current.
class Kernels {
 public:
  Kernels();
  ~Kernels();
  CUfunction operator[](const char* name) const;
  CUmodule module = nullptr;
};

CUstream make_stream(unsigned flags = CU_STREAM_DEFAULT);

// A launch of `threads` threads in one dimension.
CUresult launch(CUfunction function, unsigned blocks, unsigned threads, CUstream stream,
                std::vector<void*> params, unsigned shared = 0);

std::vector<std::uint8_t> pattern(std::size_t bytes, std::uint32_t seed);
template <typename T>
std::vector<T> download(CUdeviceptr from, std::size_t count) {
  std::vector<T> out(count);
  if (cu.cuMemcpyDtoH_v2(out.data(), from, count * sizeof(T)) != CUDA_SUCCESS) out.clear();
  return out;
}

// Runs this program again for one of the scenarios of children.cc; its exit status.
int run_child(const char* scenario);
int child_main(const std::string& scenario);
