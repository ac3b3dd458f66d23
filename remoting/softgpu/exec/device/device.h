/* Helpers of generated code, linked into each kernel's shared object. They are pure: no state, no
 * allocation, no scheduling. Names are sgrt_<operation>_<type>; the families' files say how they
 * are called. Vectors of a warp's 32 lanes are passed as pointers to 32 elements (any alignment of
 * the element type), `mask` has one bit per active lane, results of inactive lanes are left as
 * they are. Addresses are host addresses that the caller has range-checked.
 */
#ifndef HEADRACE_SOFTGPU_DEVICE_H
#define HEADRACE_SOFTGPU_DEVICE_H

#include <stdint.h>
#include <string.h>

#define SG_LANES 32

/* Runs its body for each active lane, lowest first, as `k`. */
#define SG_EACH_LANE(mask, k)                                                             \
  for (uint32_t rest_ = (mask), k; rest_ != 0 && (k = (uint32_t)__builtin_ctz(rest_), 1); \
       rest_ &= rest_ - 1)

#endif
