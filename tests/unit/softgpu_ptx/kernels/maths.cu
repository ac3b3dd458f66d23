// Mathematical functions and half precision.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define EACH                                     \
  int i = blockIdx.x * blockDim.x + threadIdx.x; \
  if (i < n)

extern "C" __global__ void single(const float* x, float* y, int n) {
  EACH {
    float v = x[i], *o = y + 10 * i;
    o[0] = expf(v);
    o[1] = logf(fabsf(v) + 0.1f);
    o[2] = sinf(v);
    o[3] = cosf(v);
    o[4] = powf(fabsf(v), 1.7f);
    o[5] = erff(v);
    o[6] = tanhf(v);
    o[7] = atan2f(v, 2.f);
    o[8] = fmodf(v, .3f);
    o[9] = rsqrtf(fabsf(v) + 1);
  }
}
extern "C" __global__ void twice(const double* x, double* y, int n) {
  EACH {
    double v = x[i], *o = y + 9 * i;
    o[0] = exp(v);
    o[1] = log(fabs(v) + 0.1);
    o[2] = sin(v);
    o[3] = cos(v);
    o[4] = pow(fabs(v), 3.1);
    o[5] = erf(v);
    o[6] = tgamma(fabs(v) + 1);
    o[7] = cbrt(v);
    o[8] = 1.0 / v + sqrt(fabs(v));
  }
}
extern "C" __global__ void large_sine(const float* x, float* y, int n) { EACH y[i] = sinf(x[i]); }
extern "C" __global__ void large_angles(const float* x, float* s, float* c, float* t, int n) {
  EACH {
    s[i] = sinf(x[i]);
    c[i] = cosf(x[i]);
    t[i] = tanf(x[i]);
  }
}
extern "C" __global__ void half_axpy(const __half* x, __half* y, int n) {
  EACH y[i] = __hfma(x[i], __float2half(2.5f), y[i]);
}
extern "C" __global__ void half_pairs(const __half2* x, __half2* y, int n) {
  EACH {
    __half2 v = x[i];
    y[i] = __hmax2(__hmul2(v, v), __hadd2(v, __habs2(v)));
  }
}
extern "C" __global__ void bfloat_scale(const __nv_bfloat16* x, __nv_bfloat16* y, int n) {
  EACH y[i] = __float2bfloat16(__bfloat162float(x[i]) * 1.5f);
}
