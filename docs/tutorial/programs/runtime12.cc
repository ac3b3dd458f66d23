// Doubles a file's bytes with the CUDA runtime 12.9, linked statically by an ordinary C++ compiler.
// The kernel was compiled apart, into a fat binary, and is registered as nvcc's own code does it.
#include "common.h"
#include "runtime12_kernel.inc"  // unsigned long long runtime12_fatbin[], made by bin2c

extern "C" {
void** __cudaRegisterFatBinary(void* wrapper);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaUnregisterFatBinary(void** handle);
void __cudaRegisterFunction(void** handle, const char* host, char* device, const char* name,
                            int limit, uint3* thread, uint3* block, dim3* block_size,
                            dim3* grid_size, int* warp_size);
}

struct FatbinWrapper {
  int magic, version;
  const void* data;
  void* unused;
};
static FatbinWrapper wrapper
    __attribute__((section(".nvFatBinSegment"))) = {0x466243b1, 1, runtime12_fatbin, nullptr};
static char twice;  // its address stands for the kernel

int main(int argc, char** argv) {
  const std::vector<float> numbers = input_numbers(argc, argv);
  std::vector<float> expected;
  for (const float number : numbers) expected.push_back(2 * number);
  void** const handle = __cudaRegisterFatBinary(&wrapper);
  static char name[] = "twice";
  __cudaRegisterFunction(handle, &twice, name, name, -1, nullptr, nullptr, nullptr, nullptr,
                         nullptr);
  __cudaRegisterFatBinaryEnd(handle);

  const Stopwatch watch;
  int status = 1;
  {
    DeviceArray<float> values(numbers);
    int count = int(numbers.size());
    float* data = values.get();
    void* arguments[] = {&data, &count};
    CHECK(cudaLaunchKernel(&twice, dim3((count + 255) / 256), dim3(256), arguments, 0, nullptr));
    const std::vector<float> got = values.read();
    status = report("static CUDA runtime 12 (gcc)", watch.seconds(),
                    largest_difference(got, expected), 0);
  }
  __cudaUnregisterFatBinary(handle);
  return status;
}
