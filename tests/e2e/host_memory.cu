// Page-locked memory as programs of the runtime use it: kernels get its address as an argument, in
// a structure, through device memory and through a symbol. Prints what the host reads afterwards.
#include <cstdio>
#include <cstdlib>

struct Structure {
  int before;
  unsigned char* to;
  int after;
};

__device__ unsigned char* symbol;

__global__ void by_argument(unsigned char* to) { *to = 0xab; }
__global__ void by_structure(Structure structure) { *structure.to = 0xab; }
__global__ void by_memory(unsigned char** where) { **where = 0xab; }
__global__ void by_symbol() { *symbol = 0xab; }
__global__ void count(int* counter, int by) {
  atomicAdd_system(counter, by);
  __threadfence_system();
}

#define CHECK(call)                                               \
  do {                                                            \
    const cudaError_t result = (call);                            \
    if (result != cudaSuccess) {                                  \
      std::printf("%s: %s\n", #call, cudaGetErrorString(result)); \
      std::exit(1);                                               \
    }                                                             \
  } while (0)

int main() {
  constexpr int kRounds = 200;
  constexpr unsigned kFlags[] = {cudaHostAllocDefault, cudaHostAllocPortable,
                                 cudaHostAllocPortable | cudaHostAllocWriteCombined,
                                 cudaHostAllocMapped};
  int right = 0;
  unsigned char** where = nullptr;
  CHECK(cudaMalloc(&where, sizeof *where));
  for (int round = 0; round < kRounds; ++round) {
    unsigned char* blocks[4];
    for (int i = 0; i < 4; ++i) {
      CHECK(i == 0 ? cudaMallocHost(&blocks[i], 64) : cudaHostAlloc(&blocks[i], 64, kFlags[i]));
      blocks[i][5] = 1;
    }
    by_argument<<<1, 1>>>(blocks[0] + 5);
    by_structure<<<1, 1>>>(Structure{1, blocks[1] + 5, 2});
    unsigned char* address = blocks[2] + 5;
    CHECK(cudaMemcpy(where, &address, sizeof address, cudaMemcpyHostToDevice));
    by_memory<<<1, 1>>>(where);
    address = blocks[3] + 5;
    CHECK(cudaMemcpyToSymbol(symbol, &address, sizeof address));
    by_symbol<<<1, 1>>>();
    CHECK(cudaDeviceSynchronize());
    for (unsigned char* block : blocks) {
      right += block[5] == 0xab;
      CHECK(cudaFreeHost(block));
    }
  }
  std::printf("stores seen: %d of %d\n", right, 4 * kRounds);

  int *counter = nullptr, *seen = nullptr;
  CHECK(cudaHostAlloc(&counter, sizeof *counter, cudaHostAllocMapped));
  CHECK(cudaHostGetDevicePointer(&seen, counter, 0));
  *counter = 1000;
  for (int i = 0; i < 10; ++i) count<<<1, 32>>>(seen, i);
  CHECK(cudaDeviceSynchronize());
  cudaPointerAttributes told{};
  CHECK(cudaPointerGetAttributes(&told, counter));
  std::printf("counter: %d, type %d, same address: %d\n", *counter, static_cast<int>(told.type),
              told.devicePointer == seen && told.hostPointer == counter);
  CHECK(cudaFreeHost(counter));
  return 0;
}
