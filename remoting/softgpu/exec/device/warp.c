/* Operations over the lanes of a warp.
 *
 *   void sgrt_match_any_bB(uint32_t mask, const T* value, const uint32_t* members, uint32_t* out);
 *   void sgrt_match_all_bB(uint32_t mask, const T* value, const uint32_t* members, uint32_t* out,
 *                          uint32_t* predicate);              predicate: 0 or 1 per lane
 *   void sgrt_redux_OP_T(uint32_t mask, const T* value, const uint32_t* members, T* out);
 *
 * B: 32 64. OP_T: add_u32 (also for s32), min_u32 max_u32 min_s32 max_s32, and_b32 or_b32 xor_b32;
 * min_f32 max_f32 on bits (a NaN loses; -0 < +0), min_nan_f32 max_nan_f32 (a NaN wins).
 * Only lanes that are both active and named by a lane's `members` take part.
 */
#include "softgpu/exec/device/device.h"

#define MATCH(B, T)                                                                               \
  void sgrt_match_any_b##B(uint32_t mask, const T* value, const uint32_t* members,                \
                           uint32_t* out) {                                                       \
    SG_EACH_LANE(mask, k) {                                                                       \
      uint32_t equal = 0;                                                                         \
      for (uint32_t other = 0; other < SG_LANES; ++other)                                         \
        equal |= (uint32_t)(value[other] == value[k]) << other;                                   \
      out[k] = equal & mask & members[k];                                                         \
    }                                                                                             \
  }                                                                                               \
  void sgrt_match_all_b##B(uint32_t mask, const T* value, const uint32_t* members, uint32_t* out, \
                           uint32_t* predicate) {                                                 \
    SG_EACH_LANE(mask, k) {                                                                       \
      const uint32_t present = mask & members[k];                                                 \
      uint32_t same = 1;                                                                          \
      SG_EACH_LANE(present, other) same &= value[other] == value[k];                              \
      predicate[k] = same;                                                                        \
      out[k] = same ? present : 0;                                                                \
    }                                                                                             \
  }
MATCH(32, uint32_t)
MATCH(64, uint64_t)

/* Lanes nearly always name the same members: then the reduction is done once. */
#define REDUX(NAME, T, first, combine)                                                     \
  void sgrt_redux_##NAME(uint32_t mask, const T* value, const uint32_t* members, T* out) { \
    uint32_t known = 0; /* members of the last reduction; 0 = none yet */                  \
    T result = (first);                                                                    \
    SG_EACH_LANE(mask, k) {                                                                \
      const uint32_t present = mask & members[k];                                          \
      if (present != known || present == 0) {                                              \
        T a = (first);                                                                     \
        SG_EACH_LANE(present, other) {                                                     \
          const T b = value[other];                                                        \
          a = (combine);                                                                   \
        }                                                                                  \
        result = a;                                                                        \
        known = present;                                                                   \
      }                                                                                    \
      out[k] = result;                                                                     \
    }                                                                                      \
  }
REDUX(add_u32, uint32_t, 0, a + b)
REDUX(min_u32, uint32_t, UINT32_MAX, b < a ? b : a)
REDUX(max_u32, uint32_t, 0, b > a ? b : a)
REDUX(min_s32, int32_t, INT32_MAX, b < a ? b : a)
REDUX(max_s32, int32_t, INT32_MIN, b > a ? b : a)
REDUX(and_b32, uint32_t, UINT32_MAX, a& b)
REDUX(or_b32, uint32_t, 0, a | b)
REDUX(xor_b32, uint32_t, 0, a ^ b)

/* Bits of floats in the order of their numbers. */
static inline int32_t ordered(uint32_t bits) {
  return bits & 0x80000000u ? (int32_t)(~bits | 0x80000000u) : (int32_t)bits;
}
static inline int is_nan(uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }
static inline uint32_t extreme(uint32_t a, uint32_t b, int greater, int nan_wins) {
  if (is_nan(a) || is_nan(b))
    return nan_wins || (is_nan(a) && is_nan(b)) ? 0x7fffffffu : is_nan(a) ? b : a;
  return (ordered(a) > ordered(b)) == greater ? a : b;
}
/* NaN is what leaves a plain minimum as it is; where NaN wins, an infinity is. */
REDUX(min_f32, uint32_t, 0x7fffffffu, extreme(a, b, 0, 0))
REDUX(max_f32, uint32_t, 0x7fffffffu, extreme(a, b, 1, 0))
REDUX(min_nan_f32, uint32_t, 0x7f800000u, extreme(a, b, 0, 1))
REDUX(max_nan_f32, uint32_t, 0xff800000u, extreme(a, b, 1, 1))
