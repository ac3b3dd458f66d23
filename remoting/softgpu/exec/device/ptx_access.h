/* Where a lane may read and write. Used by the helpers that generated code calls for memory
 * accesses that its inline fast path does not cover, and for atomics.
 *
 * A program must never reach memory of the process that runs it: every address is checked against
 * the windows in sg_warp_env before it is used.
 */
#ifndef HEADRACE_SOFTGPU_PTX_ACCESS_H
#define HEADRACE_SOFTGPU_PTX_ACCESS_H

#include <stdint.h>
#include <string.h>

#include "softgpu/exec/kernel_abi.h"

/* Address spaces, as ptx/abi.py numbers them. */
enum { SPACE_GENERIC = 0, SPACE_SHARED = 1, SPACE_LOCAL = 2, SPACE_PARAM = 3 };

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define EACH_LANE(mask, lane)                                                                  \
  for (uint32_t rest_ = (mask), lane = 0; rest_ && (lane = (uint32_t)__builtin_ctz(rest_), 1); \
       rest_ &= rest_ - 1)

ALWAYS_INLINE int inside(uint64_t address, uint64_t bytes, uint64_t low, uint64_t high) {
  uint64_t offset = address - low, size = high - low;
  return address >= low && offset < size && size - offset >= bytes;
}

/* The place of an access, or NULL where the program must not go. */
ALWAYS_INLINE uint8_t* place(const sg_warp_env* env, uint32_t space, uint32_t lane,
                             uint64_t address, uint64_t bytes) {
  if (space == SPACE_SHARED) {
    return inside(address, bytes, 0, env->shared_bytes) ? env->shared + address : NULL;
  }
  if (space == SPACE_LOCAL) {
    if (!inside(address, bytes, 0, env->local_bytes)) return NULL;
    return env->local + (uint64_t)lane * env->local_bytes + address;
  }
  if (inside(address, bytes, env->arena_lo, env->arena_hi) ||
      inside(address, bytes, env->pinned_lo, env->pinned_hi)) {
    return (uint8_t*)address;
  }
  uint64_t shared = (uint64_t)env->shared, local = (uint64_t)env->local;
  if (inside(address, bytes, shared, shared + env->shared_bytes) ||
      inside(address, bytes, local, local + (uint64_t)SG_WARP_SIZE * env->local_bytes)) {
    return (uint8_t*)address;
  }
  if (env->services->registered && env->services->registered(env, address, bytes)) {
    return (uint8_t*)address;
  }
  return NULL;
}

/* Ends the launch because of this access. */
__attribute__((noreturn)) void sgrt_access_fault(sg_warp_env* env, uint64_t address,
                                                 uint64_t bytes);

#endif
