// Matrix products through nvcuda::wmma: C = 2 * A * B, all matrices row by row.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

template <typename T, typename Kind, typename Sum, int M, int N, int K>
__device__ void product(const T* a, const T* b, Sum* c, int n, int k) {
  wmma::fragment<wmma::matrix_a, M, N, K, Kind, wmma::row_major> x;
  wmma::fragment<wmma::matrix_b, M, N, K, Kind, wmma::row_major> y;
  wmma::fragment<wmma::accumulator, M, N, K, Sum> sum;
  wmma::fill_fragment(sum, Sum(0));
  const int row = blockIdx.y * M, column = blockIdx.x * N;
  for (int i = 0; i < k; i += K) {
    wmma::load_matrix_sync(x, a + row * k + i, k);
    wmma::load_matrix_sync(y, b + i * n + column, n);
    wmma::mma_sync(sum, x, y, sum);
  }
  for (int i = 0; i < sum.num_elements; ++i) sum.x[i] *= Sum(2);
  wmma::store_matrix_sync(c + row * n + column, sum, n, wmma::mem_row_major);
}

extern "C" __global__ void halves(const half* a, const half* b, float* c, int m, int n, int k) {
  product<half, half, float, 16, 16, 16>(a, b, c, n, k);
}
extern "C" __global__ void brains(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m,
                                  int n, int k) {
  product<__nv_bfloat16, __nv_bfloat16, float, 16, 16, 16>(a, b, c, n, k);
}
extern "C" __global__ void integers(const signed char* a, const signed char* b, int* c, int m,
                                    int n, int k) {
  product<signed char, signed char, int, 16, 16, 16>(a, b, c, n, k);
}
extern "C" __global__ void doubles(const double* a, const double* b, double* c, int m, int n,
                                   int k) {
  product<double, double, double, 8, 8, 4>(a, b, c, n, k);
}
extern "C" __global__ void singles(const float* a, const float* b, float* c, int m, int n, int k) {
  product<float, wmma::precision::tf32, float, 16, 16, 8>(a, b, c, n, k);
}
