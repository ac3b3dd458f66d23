/* Atomics. For OP in add exch cas min max and or xor inc dec and their types:
 *
 *   void sgrt_atom_OP_TYPE(uint32_t mask, const uint64_t* address, const T* operand, T* old);
 *   void sgrt_atom_cas_TYPE(uint32_t mask, const uint64_t* address, const T* compare,
 *                           const T* value, T* old);
 *   void sgrt_shared_...   the same for shared memory
 *
 * Types: add u32 u64 f32 f64 f16 bf16 f16x2 bf16x2; exch cas b16 b32 b64 b128; and or xor b32 b64;
 * min max s32 u32 s64 u64 f16 bf16 f16x2 bf16x2; inc dec u32. Lanes are done in order, so lanes of
 * one address see each other's results. Every global form is sequentially consistent, which
 * includes relaxed, acquire and release: on x86-64 weaker ones are the same instructions. Shared
 * memory belongs to warps of one OS thread and needs no atomic instruction. Addresses are aligned
 * to the type.
 */
#include "softgpu/exec/device/device.h"

#define GLOBAL_PARAMETERS(T) uint32_t mask, const uint64_t *address, const T *operand, T *old

/* `next` computes the new value from `v` (old value) and `x` (operand). BITS is the unsigned type
 * of the same size, for the compare-and-exchange. */
#define ATOMIC_BY_CAS(NAME, T, BITS, next)                                             \
  void sgrt_atom_##NAME(GLOBAL_PARAMETERS(T)) {                                        \
    SG_EACH_LANE(mask, k) {                                                            \
      BITS* place = (BITS*)address[k];                                                 \
      const T x = operand[k];                                                          \
      BITS seen = __atomic_load_n(place, __ATOMIC_SEQ_CST), wanted;                    \
      T v, n;                                                                          \
      do {                                                                             \
        memcpy(&v, &seen, sizeof(v));                                                  \
        n = (next);                                                                    \
        memcpy(&wanted, &n, sizeof(n));                                                \
      } while (!__atomic_compare_exchange_n(place, &seen, wanted, 1, __ATOMIC_SEQ_CST, \
                                            __ATOMIC_SEQ_CST));                        \
      old[k] = v;                                                                      \
    }                                                                                  \
  }

#define ATOMIC_DIRECT(NAME, T, builtin)                                                   \
  void sgrt_atom_##NAME(GLOBAL_PARAMETERS(T)) {                                           \
    SG_EACH_LANE(mask, k) old[k] = builtin((T*)address[k], operand[k], __ATOMIC_SEQ_CST); \
  }

#define SHARED(NAME, T, next)                         \
  void sgrt_shared_##NAME(GLOBAL_PARAMETERS(T)) {     \
    SG_EACH_LANE(mask, k) {                           \
      T v;                                            \
      const T x = operand[k];                         \
      memcpy(&v, (const void*)address[k], sizeof(v)); \
      const T n = (next);                             \
      memcpy((void*)address[k], &n, sizeof(n));       \
      old[k] = v;                                     \
    }                                                 \
  }

#define BY_CAS(NAME, T, BITS, next) ATOMIC_BY_CAS(NAME, T, BITS, next) SHARED(NAME, T, next)
#define DIRECT(NAME, T, builtin, next) ATOMIC_DIRECT(NAME, T, builtin) SHARED(NAME, T, next)

#define INTEGER(BITS, U, S)                              \
  DIRECT(add_u##BITS, U, __atomic_fetch_add, (U)(v + x)) \
  DIRECT(and_b##BITS, U, __atomic_fetch_and, v& x)       \
  DIRECT(or_b##BITS, U, __atomic_fetch_or, v | x)        \
  DIRECT(xor_b##BITS, U, __atomic_fetch_xor, v ^ x)      \
  BY_CAS(min_u##BITS, U, U, x < v ? x : v)               \
  BY_CAS(max_u##BITS, U, U, x > v ? x : v)               \
  BY_CAS(min_s##BITS, S, U, x < v ? x : v)               \
  BY_CAS(max_s##BITS, S, U, x > v ? x : v)

INTEGER(32, uint32_t, int32_t)
INTEGER(64, uint64_t, int64_t)
BY_CAS(inc_u32, uint32_t, uint32_t, v >= x ? 0 : v + 1)
BY_CAS(dec_u32, uint32_t, uint32_t, v == 0 || v > x ? x : v - 1)

#define EXCHANGE(BITS, U)                                                                \
  DIRECT(exch_b##BITS, U, __atomic_exchange_n, x)                                        \
  void sgrt_atom_cas_b##BITS(uint32_t mask, const uint64_t* address, const U* compare,   \
                             const U* value, U* old) {                                   \
    SG_EACH_LANE(mask, k) {                                                              \
      U seen = compare[k];                                                               \
      __atomic_compare_exchange_n((U*)address[k], &seen, value[k], 0, __ATOMIC_SEQ_CST,  \
                                  __ATOMIC_SEQ_CST);                                     \
      old[k] = seen;                                                                     \
    }                                                                                    \
  }                                                                                      \
  void sgrt_shared_cas_b##BITS(uint32_t mask, const uint64_t* address, const U* compare, \
                               const U* value, U* old) {                                 \
    SG_EACH_LANE(mask, k) {                                                              \
      U* place = (U*)address[k];                                                         \
      const U seen = *place;                                                             \
      if (seen == compare[k]) *place = value[k];                                         \
      old[k] = seen;                                                                     \
    }                                                                                    \
  }

EXCHANGE(16, uint16_t)
EXCHANGE(32, uint32_t)
EXCHANGE(64, uint64_t)

/* 16 bytes: by compare-and-exchange, which the compiler makes one instruction of (cmpxchg16b). */
typedef unsigned __int128 u128;

static inline u128 load_u128(const u128* vector, uint32_t lane) {
  u128 value;
  memcpy(&value, (const uint8_t*)vector + sizeof value * lane, sizeof value);
  return value;
}

void sgrt_atom_cas_b128(uint32_t mask, const uint64_t* address, const u128* compare,
                        const u128* value, u128* old) {
  SG_EACH_LANE(mask, k) {
    const u128 seen =
        __sync_val_compare_and_swap((u128*)address[k], load_u128(compare, k), load_u128(value, k));
    memcpy((uint8_t*)old + sizeof seen * k, &seen, sizeof seen);
  }
}

void sgrt_atom_exch_b128(uint32_t mask, const uint64_t* address, const u128* operand, u128* old) {
  SG_EACH_LANE(mask, k) {
    const u128 wanted = load_u128(operand, k);
    u128* place = (u128*)address[k];
    u128 expected = 0, seen;
    while ((seen = __sync_val_compare_and_swap(place, expected, wanted)) != expected)
      expected = seen;
    memcpy((uint8_t*)old + sizeof seen * k, &seen, sizeof seen);
  }
}

void sgrt_shared_cas_b128(uint32_t mask, const uint64_t* address, const u128* compare,
                          const u128* value, u128* old) {
  sgrt_atom_cas_b128(mask, address, compare, value, old);
}

void sgrt_shared_exch_b128(uint32_t mask, const uint64_t* address, const u128* operand, u128* old) {
  sgrt_atom_exch_b128(mask, address, operand, old);
}

/* ---- floating point ---- */

/* atom.add.f32 on global memory flushes subnormal operands and results; on shared memory it does
 * not. f64 never flushes. */
static inline float flush(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7f800000u) == 0) bits &= 0x80000000u;
  memcpy(&value, &bits, sizeof(bits));
  return value;
}

ATOMIC_BY_CAS(add_f32, float, uint32_t, flush(flush(v) + flush(x)))
SHARED(add_f32, float, v + x)
BY_CAS(add_f64, double, uint64_t, v + x)

/* The sum of two f16 (or bf16) is exact in f64, so that one rounding remains. */
static inline uint16_t half_add(uint16_t a, uint16_t b) {
  _Float16 x, y, sum;
  memcpy(&x, &a, sizeof(x));
  memcpy(&y, &b, sizeof(y));
  sum = (_Float16)((float)x + (float)y); /* f32 holds the sum of two f16 without error */
  uint16_t bits;
  memcpy(&bits, &sum, sizeof(bits));
  return (bits & 0x7fffu) > 0x7c00u ? 0x7fffu : bits;
}

static inline uint16_t bfloat_add(uint16_t a, uint16_t b) {
  const uint32_t wide_a = (uint32_t)a << 16, wide_b = (uint32_t)b << 16;
  float x, y;
  memcpy(&x, &wide_a, sizeof(x));
  memcpy(&y, &wide_b, sizeof(y));
  /* Round to odd in f32 before rounding to bf16: the f32 sum is not always exact. */
  const double exact = (double)x + (double)y;
  float sum = (float)exact;
  uint32_t bits;
  memcpy(&bits, &sum, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  if ((double)sum != exact && (bits & 0x7f800000u) != 0x7f800000u && (bits & 1u) == 0) {
    /* towards the exact value, whose neighbour has an odd last bit */
    const double away = sum < 0 ? -exact : exact, kept = sum < 0 ? -(double)sum : (double)sum;
    bits += away > kept ? 1u : (uint32_t)-1;
  }
  if ((bits & 0x7f800000u) == 0x7f800000u) return (uint16_t)(bits >> 16);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline uint32_t half2_add(uint32_t a, uint32_t b) {
  return half_add((uint16_t)a, (uint16_t)b) |
         (uint32_t)half_add((uint16_t)(a >> 16), (uint16_t)(b >> 16)) << 16;
}

static inline uint32_t bfloat2_add(uint32_t a, uint32_t b) {
  return bfloat_add((uint16_t)a, (uint16_t)b) |
         (uint32_t)bfloat_add((uint16_t)(a >> 16), (uint16_t)(b >> 16)) << 16;
}

BY_CAS(add_f16, uint16_t, uint16_t, half_add(v, x))
BY_CAS(add_bf16, uint16_t, uint16_t, bfloat_add(v, x))
BY_CAS(add_f16x2, uint32_t, uint32_t, half2_add(v, x))
BY_CAS(add_bf16x2, uint32_t, uint32_t, bfloat2_add(v, x))

/* min and max: a NaN loses, -0 < +0. Both half types order as sign and magnitude. */
static inline uint16_t half_extreme(uint16_t a, uint16_t b, uint16_t infinity, int greater) {
  const int nan_a = (a & 0x7fffu) > infinity, nan_b = (b & 0x7fffu) > infinity;
  if (nan_a || nan_b) return nan_a && nan_b ? 0x7fffu : nan_a ? b : a;
  const int32_t x = a & 0x8000u ? -(int32_t)(a & 0x7fffu) - 1 : a;
  const int32_t y = b & 0x8000u ? -(int32_t)(b & 0x7fffu) - 1 : b;
  return (x > y) == greater ? a : b;
}

static inline uint32_t half2_extreme(uint32_t a, uint32_t b, uint16_t infinity, int greater) {
  return half_extreme((uint16_t)a, (uint16_t)b, infinity, greater) |
         (uint32_t)half_extreme((uint16_t)(a >> 16), (uint16_t)(b >> 16), infinity, greater) << 16;
}

#define HALF_EXTREMES(KIND, infinity)                                          \
  BY_CAS(min_##KIND, uint16_t, uint16_t, half_extreme(v, x, infinity, 0))      \
  BY_CAS(max_##KIND, uint16_t, uint16_t, half_extreme(v, x, infinity, 1))      \
  BY_CAS(min_##KIND##x2, uint32_t, uint32_t, half2_extreme(v, x, infinity, 0)) \
  BY_CAS(max_##KIND##x2, uint32_t, uint32_t, half2_extreme(v, x, infinity, 1))
HALF_EXTREMES(f16, 0x7c00)
HALF_EXTREMES(bf16, 0x7f80)
