/* wmma: matrices of a warp as fragments whose layout is this implementation's own.
 *
 *   void sgrt_wmma_load(env, space, shape, addresses, strides, out);
 *   void sgrt_wmma_store(env, space, shape, addresses, strides, in);
 *   void sgrt_wmma_TYPES(uint32_t sizes, const void* a, const void* b, const void* c, void* d);
 *
 * PTX leaves open which element lies where in a fragment. Here element number e of a matrix, row by
 * row, is slot e / 32 of lane e % 32; a fragment with more slots than that holds the elements again
 * from the first on. Slots of less than 32 bits share registers, the first in the low bits.
 *
 * shape: rows | columns << 8 | slots << 16 | log2(bytes of an element) << 24 | by columns << 28.
 * sizes: M | N << 8 | K << 16 of the product; bit 31: clamp what is out of range.
 *
 * Products are exact; sums are taken in single precision in the order of k (f64: fused), as in
 * mma.c.
 */
#include <immintrin.h>
#include <math.h>

#include "softgpu/exec/device/ptx_access.h"

enum { LANES = SG_WARP_SIZE };

/* Where a slot's element lies in memory: in elements from the matrix's start. */
ALWAYS_INLINE uint64_t element_at(uint32_t shape, uint32_t number, uint64_t stride) {
  const uint32_t rows = shape & 255, columns = shape >> 8 & 255;
  number %= rows * columns;
  const uint64_t row = number / columns, column = number % columns;
  return shape >> 28 & 1 ? column * stride + row : row * stride + column;
}

/* Byte of slot `slot` of lane `lane` in the registers: slots of a register lie side by side. */
ALWAYS_INLINE uint32_t slot_at(uint32_t slot, uint32_t lane, uint32_t size) {
  const uint32_t per = size < 4 ? 4 / size : 1;
  return ((slot / per * LANES + lane) * per + slot % per) * size;
}

ALWAYS_INLINE uint8_t* checked(sg_warp_env* env, uint32_t space, uint32_t lane, uint64_t address,
                               uint64_t size) {
  uint8_t* found = address & (size - 1) ? NULL : place(env, space, lane, address, size);
  if (!found) sgrt_access_fault(env, address, size);
  return found;
}

void sgrt_wmma_load(sg_warp_env* env, uint32_t space, uint32_t shape, const uint64_t* addresses,
                    const uint32_t* strides, uint8_t* out) {
  const uint32_t slots = shape >> 16 & 255, size = 1u << (shape >> 24 & 15);
  for (uint32_t slot = 0; slot < slots; ++slot)
    for (uint32_t lane = 0; lane < LANES; ++lane) {
      const uint64_t at = element_at(shape, slot * LANES + lane, strides[lane]) * size;
      memcpy(out + slot_at(slot, lane, size), checked(env, space, lane, addresses[lane] + at, size),
             size);
    }
}

void sgrt_wmma_store(sg_warp_env* env, uint32_t space, uint32_t shape, const uint64_t* addresses,
                     const uint32_t* strides, const uint8_t* in) {
  const uint32_t slots = shape >> 16 & 255, size = 1u << (shape >> 24 & 15);
  for (uint32_t slot = 0; slot < slots; ++slot)
    for (uint32_t lane = 0; lane < LANES; ++lane) {
      const uint64_t at = element_at(shape, slot * LANES + lane, strides[lane]) * size;
      memcpy(checked(env, space, lane, addresses[lane] + at, size), in + slot_at(slot, lane, size),
             size);
    }
}

ALWAYS_INLINE float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
ALWAYS_INLINE float from_f16(uint16_t bits) { return _cvtsh_ss(bits); }
ALWAYS_INLINE float from_bf16(uint16_t bits) { return from_bits((uint32_t)bits << 16); }
/* The 13 low bits are not part of the number. */
ALWAYS_INLINE float from_tf32(uint32_t bits) { return from_bits(bits & 0xffffe000u); }
ALWAYS_INLINE float from_f32(float value) { return value; }
ALWAYS_INLINE int64_t from_s8(int8_t value) { return value; }
ALWAYS_INLINE int64_t from_u8(uint8_t value) { return value; }
ALWAYS_INLINE int64_t from_s32(int32_t value) { return value; }
ALWAYS_INLINE double from_f64(double value) { return value; }
ALWAYS_INLINE uint16_t to_f16(float value, uint32_t saturate) {
  if (value != value) return 0x7fff;
  uint16_t bits = (uint16_t)_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
  if (saturate && (bits & 0x7fff) == 0x7c00) --bits;
  return bits;
}
ALWAYS_INLINE float to_f32(float value, uint32_t saturate) {
  if (saturate && isinf(value)) return value > 0 ? 3.402823466e38f : -3.402823466e38f;
  return value;
}
ALWAYS_INLINE int32_t to_s32(int64_t value, uint32_t saturate) {
  if (!saturate) return (int32_t)(uint32_t)value;
  return (int32_t)(value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value);
}
ALWAYS_INLINE double to_f64(double value, uint32_t saturate) {
  (void)saturate;
  return value;
}

/* Element `number` of a fragment of elements of type T. */
#define ELEMENT(T, fragment, number) \
  (*(T*)((uint8_t*)(fragment) + slot_at((number) / LANES, (number) % LANES, sizeof(T))))

#define PRODUCT(NAME, S, A, A_TYPE, B, B_TYPE, C, C_TYPE, D, D_TYPE, combine)                   \
  void sgrt_wmma_##NAME(uint32_t sizes, const void* a, const void* b, const void* c, void* d) { \
    const uint32_t m = sizes & 255, n = sizes >> 8 & 255, depth = sizes >> 16 & 255;            \
    for (uint32_t i = 0; i < m; ++i)                                                            \
      for (uint32_t j = 0; j < n; ++j) {                                                        \
        S sum = from_##C(ELEMENT(const C_TYPE, c, i* n + j));                                   \
        for (uint32_t k = 0; k < depth; ++k) {                                                  \
          const S x = from_##A(ELEMENT(const A_TYPE, a, i* depth + k));                         \
          const S y = from_##B(ELEMENT(const B_TYPE, b, k* n + j));                             \
          sum = combine;                                                                        \
        }                                                                                       \
        ELEMENT(D_TYPE, d, i* n + j) = to_##D(sum, sizes >> 31);                                \
      }                                                                                         \
  }

#define HALVES(D, D_TYPE, C, C_TYPE) \
  PRODUCT(D##_f16_f16_##C, float, f16, uint16_t, f16, uint16_t, C, C_TYPE, D, D_TYPE, sum + x * y)
HALVES(f16, uint16_t, f16, uint16_t)
HALVES(f32, float, f16, uint16_t)
HALVES(f16, uint16_t, f32, float)
HALVES(f32, float, f32, float)
PRODUCT(f32_bf16_bf16_f32, float, bf16, uint16_t, bf16, uint16_t, f32, float, f32, float,
        sum + x * y)
PRODUCT(f32_tf32_tf32_f32, float, tf32, uint32_t, tf32, uint32_t, f32, float, f32, float,
        sum + x * y)
PRODUCT(s32_s8_s8_s32, int64_t, s8, int8_t, s8, int8_t, s32, int32_t, s32, int32_t, sum + x * y)
PRODUCT(s32_u8_u8_s32, int64_t, u8, uint8_t, u8, uint8_t, s32, int32_t, s32, int32_t, sum + x * y)
PRODUCT(f64_f64_f64_f64, double, f64, double, f64, double, f64, double, f64, double, fma(x, y, sum))
