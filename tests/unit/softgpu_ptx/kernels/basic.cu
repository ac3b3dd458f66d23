// Ordinary kernels, compiled by NVRTC while the tests run.
extern "C" __global__ void vector_add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void saxpy_strided(float alpha, const float* x, float* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    y[i] = alpha * x[i] + y[i];
}

constexpr int tile = 16;
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int rows, int columns,
                                  int inner) {
  __shared__ float left[tile][tile], right[tile][tile];
  int x = threadIdx.x, y = threadIdx.y;
  int row = blockIdx.y * tile + y, column = blockIdx.x * tile + x;
  float sum = 0;
  for (int k = 0; k < inner; k += tile) {
    left[y][x] = row < rows && k + x < inner ? a[row * inner + k + x] : 0.f;
    right[y][x] = k + y < inner && column < columns ? b[(k + y) * columns + column] : 0.f;
    __syncthreads();
    for (int j = 0; j < tile; j++) sum += left[y][j] * right[j][x];
    __syncthreads();
  }
  if (row < rows && column < columns) c[row * columns + column] = sum;
}

__device__ float warp_sum(float v) {
  for (int offset = 16; offset; offset >>= 1) v += __shfl_down_sync(~0u, v, offset);
  return v;
}

extern "C" __global__ void reduce(const float* x, float* out, int n) {
  __shared__ float part[32];
  float v = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
  v = warp_sum(v);
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  if (!lane) part[warp] = v;
  __syncthreads();
  if (!warp) {
    v = warp_sum(lane < (blockDim.x >> 5) ? part[lane] : 0.f);
    if (!lane) atomicAdd(out, v);
  }
}

extern "C" __global__ void histogram(const unsigned char* data, unsigned* bins, int n) {
  __shared__ unsigned local[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&local[data[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}

extern "C" __global__ void histogram_global(const unsigned char* data, unsigned* bins, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&bins[data[i]], 1u);
}

extern "C" __global__ void dynamic_reverse(int* data) {
  extern __shared__ int buffer[];
  int n = blockDim.x, i = threadIdx.x;
  buffer[i] = data[blockIdx.x * n + i];
  __syncthreads();
  data[blockIdx.x * n + i] = buffer[n - 1 - i];
}

__device__ int counters[4] = {1, 2, 3, 4};
__device__ int* pointers[2] = {&counters[1], &counters[3]};
__constant__ float weights[3] = {0.5f, 0.25f, 0.125f};
extern "C" __global__ void module_data(float* out) {
  int i = threadIdx.x;
  out[i] = weights[i % 3] * (*pointers[i & 1]) + counters[i & 3];
}

extern "C" __global__ void divergent(const int* x, int* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int v = x[i], steps = 0;
  while (v != 1) {
    if (v & 1) {
      v = 3 * v + 1;
      if (v > 100000) continue;
    } else {
      v /= 2;
    }
    if (++steps > 200) break;
  }
  switch (x[i] % 5) {
    case 0:
      steps += 10;
      break;
    case 1:
      steps *= 2;
      break;
    case 2:
      steps -= 7;
      break;
    case 3:
      steps ^= 21;
      break;
    default:
      steps = -steps;
  }
  y[i] = steps;
}

__device__ int lock_word;
extern "C" __global__ void locked_increment(int* x) {
  bool done = false;
  while (!done) {
    if (atomicCAS(&lock_word, 0, 1) == 0) {
      x[0]++;
      __threadfence();
      atomicExch(&lock_word, 0);
      done = true;
    }
  }
}

extern "C" __global__ void local_array(const float* x, float* y, const int* order, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float keep[8];
  for (int k = 0; k < 8; k++) keep[k] = x[(i + k) % n];
  float sum = 0;
  for (int k = 0; k < 8; k++) sum = sum * 2 + keep[order[(i + k) % 8] & 7];
  if (i < n) y[i] = sum;
}

struct Mixed {
  char c;
  double d;
  float a[5];
};
extern "C" __global__ void struct_parameter(Mixed m, double* out) {
  out[threadIdx.x] = m.d + m.a[threadIdx.x % 5] + m.c;
}

extern "C" __global__ void early_exit(int* out) {
  __shared__ int total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  if (threadIdx.x % 3 == 0) return;
  atomicAdd(&total, 1);
  __syncthreads();
  out[threadIdx.x] = total;
}
