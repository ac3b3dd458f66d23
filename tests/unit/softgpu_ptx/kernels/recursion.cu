// Recursive device functions.
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

extern "C" __global__ void fibonacci(const int* n, int* out) {
  out[threadIdx.x] = fib(n[threadIdx.x]);
}

__device__ __noinline__ int ack(int m, int n) {
  if (m == 0) return n + 1;
  return ack(m - 1, n == 0 ? 1 : ack(m, n - 1));
}

extern "C" __global__ void ackermann(const int* m, int* out) {
  out[threadIdx.x] = ack(m[threadIdx.x], threadIdx.x % 5);
}

__device__ int odd(int n);
__device__ __noinline__ int even(int n) { return n == 0 ? 1 : 3 * odd(n - 1) + n; }
__device__ __noinline__ int odd(int n) { return n == 0 ? 0 : 5 * even(n - 1) - n; }

extern "C" __global__ void mutual(const int* n, int* out) {
  out[threadIdx.x] = even(n[threadIdx.x]);
}

// Merge sort with a buffer in each frame.
__device__ __noinline__ void merge_sort(int* a, int n) {
  if (n < 2) return;
  int half = n / 2, buffer[24];
  merge_sort(a, half);
  merge_sort(a + half, n - half);
  int i = 0, j = half;
  for (int k = 0; k < n; ++k) buffer[k] = j == n || (i < half && a[i] <= a[j]) ? a[i++] : a[j++];
  for (int k = 0; k < n; ++k) a[k] = buffer[k];
}

extern "C" __global__ void sort(int* data) {
  int mine[24];
  for (int k = 0; k < 24; ++k) mine[k] = data[24 * threadIdx.x + k];
  merge_sort(mine, 24);
  for (int k = 0; k < 24; ++k) data[24 * threadIdx.x + k] = mine[k];
}

struct Both {
  double value;
  int count;
};

__device__ __noinline__ Both step(int depth, double x, bool flag) {
  if (depth == 0) return {x, flag};
  Both left = step(depth - 1, x * 0.5, !flag), right = step(depth - 1, x + depth, flag);
  if (flag) return {left.value - right.value, left.count + 2 * right.count};
  return {left.value + right.value, left.count - right.count + 7};
}

extern "C" __global__ void walk(double* values, int* counts) {
  Both result = step(threadIdx.x % 6, threadIdx.x * 0.25, threadIdx.x % 3 == 0);
  values[threadIdx.x] = result.value;
  counts[threadIdx.x] = result.count;
}

struct Node {
  __device__ virtual int value(int n, Node** nodes) = 0;
};
struct Plus : Node {
  __device__ int value(int n, Node** nodes) override {
    return n <= 0 ? 1 : nodes[(n - 1) & 1]->value(n - 1, nodes) + 2;
  }
};
struct Times : Node {
  __device__ int value(int n, Node** nodes) override {
    return n <= 0 ? 1 : 3 * nodes[(n - 2) & 1]->value(n - 2, nodes);
  }
};

extern "C" __global__ void tree(const int* n, int* out) {
  Plus plus;
  Times times;
  Node* nodes[2] = {&times, &plus};
  out[threadIdx.x] = nodes[n[threadIdx.x] & 1]->value(n[threadIdx.x], nodes);
}

__device__ __noinline__ int dig(int n) {
  volatile int keep = n;
  int below = n <= 0 ? 0 : dig(n - 1);
  return below + keep;
}

extern "C" __global__ void deep(const int* n, int* out) { out[threadIdx.x] = dig(n[threadIdx.x]); }

__shared__ int words[64];

__device__ __noinline__ int level(int depth) {
  if (depth == 0) return 0;
  int rest = level(depth - 1);
  words[threadIdx.x] = threadIdx.x;
  __syncthreads();
  int value = depth % 2 ? words[63 - threadIdx.x] : words[threadIdx.x];
  __syncthreads();
  return rest + value;
}

extern "C" __global__ void levels(int* out) { out[threadIdx.x] = level(5); }
