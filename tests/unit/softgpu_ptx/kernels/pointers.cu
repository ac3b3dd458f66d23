// Calls through function pointers and virtual functions.
__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int square(int x) { return x * x; }
__device__ __noinline__ int negate(int x) { return -x; }
__device__ __noinline__ float scaled(float x) { return x * 0.5f; }
__device__ __noinline__ int apply(int (*f)(int), int x) { return f(x) + 1; }

typedef int (*operation)(int);
__device__ operation table[3] = {twice, square, negate};
__device__ operation chosen;
__device__ float (*other)(float) = scaled;

extern "C" __global__ void by_table(const int* which, int* out) {
  out[threadIdx.x] = table[which[threadIdx.x]](threadIdx.x);
}

extern "C" __global__ void nested(const int* which, int* out) {
  int x = threadIdx.x;
  if (which[x] < 3) out[x] = apply(table[which[x]], x);
}

extern "C" __global__ void choose(int which) { chosen = which ? square : negate; }
extern "C" __global__ void use_chosen(int* out) { out[threadIdx.x] = chosen(threadIdx.x); }
extern "C" __global__ void get(operation* out) { *out = twice; }
extern "C" __global__ void given(operation f, int* out) { out[threadIdx.x] = f(threadIdx.x); }
extern "C" __global__ void single(float* out) { out[threadIdx.x] = other(threadIdx.x); }

struct shape {
  __device__ virtual int area(int x) = 0;
};
struct box : shape {
  int side;
  __device__ box(int s) : side(s) {}
  __device__ __noinline__ int area(int x) override { return side * x; }
};
struct frame : shape {
  __device__ __noinline__ int area(int x) override { return x < 2 ? 1 : 4 * x - 4; }
};

extern "C" __global__ void virtual_call(const int* which, int* out) {
  box b(7);
  frame f;
  shape* shapes[2] = {&b, &f};
  out[threadIdx.x] = shapes[which[threadIdx.x] & 1]->area(threadIdx.x);
}
