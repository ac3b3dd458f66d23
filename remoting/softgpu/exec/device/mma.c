/* mma.sync: matrix products of a warp, D = A * B + C.
 *
 *   void sgrt_mma_SHAPE_TYPES(const R* a, const R* b, const R* c, R* d);
 *
 * Each argument is a fragment: for each register, the values of the 32 lanes. SHAPE is m<M>n8k<K>;
 * TYPES names the types of D, A and B (C is as D). With E elements in a register, lane l = 4g + t
 * holds columns t*E .. t*E+E-1 of 4*E columns of A, in row g; further registers are first the rows
 * 8 below, then the columns to the right. B is the same with rows and columns exchanged. A lane has
 * columns 2t and 2t+1 of D, in row g, then in row g + 8.
 *
 * Products are exact, sums are taken in single precision in the order of k, which PTX leaves open;
 * f64 is a chain of fused operations. Integer sums wrap around, or are clamped once for .satfinite.
 */
#include <immintrin.h>
#include <math.h>

#include "softgpu/exec/device/device.h"

#define INLINE static inline __attribute__((always_inline))

INLINE float from_f16(uint32_t word, uint32_t e) { return _cvtsh_ss((uint16_t)(word >> (16 * e))); }

INLINE uint32_t to_f16(float value) {
  return value != value ? 0x7fff : (uint32_t)_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT) & 0xffff;
}

INLINE float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

INLINE float from_bf16(uint32_t word, uint32_t e) {
  return from_bits(e ? word & 0xffff0000u : word << 16);
}

/* The 13 low bits are not part of the number. */
INLINE float from_tf32(uint32_t word, uint32_t e) {
  (void)e;
  return from_bits(word & 0xffffe000u);
}

INLINE int32_t from_s8(uint32_t word, uint32_t e) { return (int8_t)(word >> (8 * e)); }
INLINE int32_t from_u8(uint32_t word, uint32_t e) { return (uint8_t)(word >> (8 * e)); }
INLINE double from_f64(double value, uint32_t e) {
  (void)e;
  return value;
}

/* Fragments a and b as matrices A[M][K] and B[K][8] of T; sources of type R, E elements each. */
#define UNPACK(M, K, E, T, decode_a, decode_b)                                            \
  T A[M][K], B[K][8];                                                                     \
  for (uint32_t l = 0; l < SG_LANES; ++l) {                                               \
    const uint32_t g = l >> 2, t = l & 3;                                                 \
    for (uint32_t r = 0; r < (M) * (K) / 32 / (E); ++r) {                                 \
      const uint32_t row = (M) == 16 ? g + 8 * (r & 1) : g;                               \
      const uint32_t column = 4 * (E) * ((M) == 16 ? r >> 1 : r) + t * (E);               \
      for (uint32_t e = 0; e < (E); ++e) A[row][column + e] = decode_a(a[r * 32 + l], e); \
    }                                                                                     \
    for (uint32_t r = 0; r < (K) / 4 / (E); ++r)                                          \
      for (uint32_t e = 0; e < (E); ++e)                                                  \
        B[4 * (E)*r + t * (E) + e][g] = decode_b(b[r * 32 + l], e);                       \
  }

/* Does `what` for each accumulator register r of each lane l: it holds D[row][column]. */
#define EACH_ACCUMULATOR(M, what)                                                   \
  for (uint32_t l = 0; l < SG_LANES; ++l)                                           \
    for (uint32_t r = 0; r < (M) / 4; ++r) {                                        \
      const uint32_t row = (l >> 2) + 8 * (r >> 1), column = 2 * (l & 3) + (r & 1); \
      what;                                                                         \
    }

/* The same for accumulators in pairs of f16. */
#define EACH_PAIR(M, what)                                         \
  for (uint32_t l = 0; l < SG_LANES; ++l)                          \
    for (uint32_t r = 0; r < (M) / 8; ++r) {                       \
      const uint32_t row = (l >> 2) + 8 * r, column = 2 * (l & 3); \
      what;                                                        \
    }

#define PRODUCT(M, K)                  \
  for (uint32_t i = 0; i < (M); ++i)   \
    for (uint32_t k = 0; k < (K); ++k) \
      for (uint32_t j = 0; j < 8; ++j) D[i][j] += A[i][k] * B[k][j];

#define TO_F32(NAME, M, K, E, decode)                                                    \
  void sgrt_mma_##NAME(const uint32_t* a, const uint32_t* b, const float* c, float* d) { \
    UNPACK(M, K, E, float, decode, decode)                                               \
    float D[M][8];                                                                       \
    EACH_ACCUMULATOR(M, D[row][column] = c[r * 32 + l])                                  \
    PRODUCT(M, K)                                                                        \
    EACH_ACCUMULATOR(M, d[r * 32 + l] = D[row][column])                                  \
  }
TO_F32(m16n8k8_f32_f16_f16, 16, 8, 2, from_f16)
TO_F32(m16n8k16_f32_f16_f16, 16, 16, 2, from_f16)
TO_F32(m16n8k8_f32_bf16_bf16, 16, 8, 2, from_bf16)
TO_F32(m16n8k16_f32_bf16_bf16, 16, 16, 2, from_bf16)
TO_F32(m16n8k4_f32_tf32_tf32, 16, 4, 1, from_tf32)
TO_F32(m16n8k8_f32_tf32_tf32, 16, 8, 1, from_tf32)

#define TO_F16(NAME, M, K)                                                                     \
  void sgrt_mma_##NAME(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* d) { \
    UNPACK(M, K, 2, float, from_f16, from_f16)                                                 \
    float D[M][8];                                                                             \
    EACH_PAIR(M, D[row][column] = from_f16(c[r * 32 + l], 0);                                  \
              D[row][column + 1] = from_f16(c[r * 32 + l], 1))                                 \
    PRODUCT(M, K)                                                                              \
    EACH_PAIR(M, d[r * 32 + l] = to_f16(D[row][column]) | to_f16(D[row][column + 1]) << 16)    \
  }
TO_F16(m16n8k8_f16_f16_f16, 16, 8)
TO_F16(m16n8k16_f16_f16_f16, 16, 16)

INLINE int32_t clamp(int64_t value) {
  return (int32_t)(value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value);
}

/* The products of one element do not exceed 2^21 together: only the accumulator can overflow. */
#define TO_S32(NAME, M, K, A_TYPE, B_TYPE)                                                        \
  INLINE void NAME##_##A_TYPE##_##B_TYPE(const uint32_t* a, const uint32_t* b, int32_t D[M][8]) { \
    UNPACK(M, K, 4, int32_t, from_##A_TYPE, from_##B_TYPE)                                        \
    memset(D, 0, sizeof(int32_t) * (M)*8);                                                        \
    PRODUCT(M, K)                                                                                 \
  }                                                                                               \
  void sgrt_mma_##NAME##_s32_##A_TYPE##_##B_TYPE(const uint32_t* a, const uint32_t* b,            \
                                                 const uint32_t* c, uint32_t* d) {                \
    int32_t D[M][8];                                                                              \
    NAME##_##A_TYPE##_##B_TYPE(a, b, D);                                                          \
    EACH_ACCUMULATOR(M, d[r * 32 + l] = c[r * 32 + l] + (uint32_t)D[row][column])                 \
  }                                                                                               \
  void sgrt_mma_##NAME##_satfinite_s32_##A_TYPE##_##B_TYPE(const uint32_t* a, const uint32_t* b,  \
                                                           const uint32_t* c, uint32_t* d) {      \
    int32_t D[M][8];                                                                              \
    NAME##_##A_TYPE##_##B_TYPE(a, b, D);                                                          \
    EACH_ACCUMULATOR(                                                                             \
        M, d[r * 32 + l] = (uint32_t)clamp((int64_t)(int32_t)c[r * 32 + l] + D[row][column]))     \
  }
#define TO_S32_SIGNS(NAME, M, K) \
  TO_S32(NAME, M, K, s8, s8)     \
  TO_S32(NAME, M, K, s8, u8)     \
  TO_S32(NAME, M, K, u8, s8)     \
  TO_S32(NAME, M, K, u8, u8)
TO_S32_SIGNS(m8n8k16, 8, 16)
TO_S32_SIGNS(m16n8k16, 16, 16)
TO_S32_SIGNS(m16n8k32, 16, 32)

void sgrt_mma_m8n8k4_f64_f64_f64(const double* a, const double* b, const double* c, double* d) {
  UNPACK(8, 4, 1, double, from_f64, from_f64)
  double D[8][8];
  EACH_ACCUMULATOR(8, D[row][column] = c[r * 32 + l])
  for (uint32_t i = 0; i < 8; ++i)
    for (uint32_t k = 0; k < 4; ++k)
      for (uint32_t j = 0; j < 8; ++j) D[i][j] = fma(A[i][k], B[k][j], D[i][j]);
  EACH_ACCUMULATOR(8, d[r * 32 + l] = D[row][column])
}
