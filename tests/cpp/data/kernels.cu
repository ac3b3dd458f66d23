// Images for the readers of remoting/driverabi: kernels with mixed parameters, none at all, a
// static one, and device functions that must not be taken for kernels.
struct Three {
  char bytes[3];
};
struct __align__(16) Wide {
  double values[4];
};

__constant__ int factors[4] = {1, 2, 3, 4};
__device__ unsigned counter = 7;
__device__ char room[1 << 20];
__managed__ int managed = 5;

__device__ __noinline__ double helper(double x) { return sqrt(x) / 3.0; }

extern "C" __global__ void mixed(char a, double* b, short c, Three d, Wide e, int f, double g) {
  __shared__ int scratch[32];
  scratch[threadIdx.x % 32] = f + d.bytes[1];
  __syncthreads();
  b[0] = helper(b[1]) + scratch[a & 31] + c + e.values[2] + g + factors[a & 3] + room[f] + managed;
  atomicAdd(&counter, 1u);
}

extern "C" __global__ void __launch_bounds__(128) no_parameters() {}

static __global__ void hidden(int* p) { *p = 1; }

void keep() { hidden<<<1, 1>>>(nullptr); }
