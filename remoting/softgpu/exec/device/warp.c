/* Operations over the lanes of a warp.
 *
 *   void sgrt_match_any_bB(uint32_t mask, const T* value, const uint32_t* members, uint32_t* out);
 *   void sgrt_match_all_bB(uint32_t mask, const T* value, const uint32_t* members, uint32_t* out,
 *                          uint32_t* predicate);              predicate: 0 or 1 per lane
 *   void sgrt_redux_OP_T(uint32_t mask, const T* value, const uint32_t* members, T* out);
 *
 * B: 32 64. OP_T: add_u32 (also for s32), min_u32 max_u32 min_s32 max_s32, and_b32 or_b32 xor_b32.
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
