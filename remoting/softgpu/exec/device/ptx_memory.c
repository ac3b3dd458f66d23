/* Loads and stores of one warp, lane by lane where need be.
 *
 * Generated code handles a full warp with consecutive addresses itself; everything else comes
 * here. `spec` = space | log2(element bytes) << 4 | elements << 8; values are arrays of 32 lanes,
 * one after another for each element. sgrt_resolve gives the host addresses of lanes for an atomic
 * operation of that many bytes.
 */
#include "softgpu/exec/device/ptx_access.h"

void sgrt_access_fault(sg_warp_env* env, uint64_t address, uint64_t bytes) {
  uint32_t kind = address & (bytes - 1) ? SG_TRAP_MISALIGNED : SG_TRAP_ILLEGAL_ADDRESS;
  env->services->trap(env, kind, address);
}

ALWAYS_INLINE uint8_t* checked(sg_warp_env* env, uint32_t space, uint32_t lane, uint64_t address,
                               uint64_t bytes, int writes, const uint8_t* params_end) {
  if (address & (bytes - 1)) sgrt_access_fault(env, address, bytes);
  if (space == SPACE_PARAM) {
    uint64_t size = (uint64_t)(params_end - env->params);
    if (writes || !inside(address, bytes, 0, size)) sgrt_access_fault(env, address, bytes);
    return env->params + address;
  }
  uint8_t* found = place(env, space, lane, address, bytes);
  if (!found && space == SPACE_GENERIC && !writes &&
      inside(address, bytes, (uint64_t)env->params, (uint64_t)params_end)) {
    found = (uint8_t*)address;
  }
  if (!found) sgrt_access_fault(env, address, bytes);
  return found;
}

ALWAYS_INLINE void copy(uint8_t* to, const uint8_t* from, uint64_t bytes) {
  __builtin_memcpy(to, from, bytes);
}

ALWAYS_INLINE void load(sg_warp_env* env, uint32_t space, uint64_t size, uint64_t count,
                        const uint64_t* addresses, uint32_t mask, uint8_t* out,
                        const uint8_t* params_end) {
  EACH_LANE(mask, k) {
    const uint8_t* from = checked(env, space, k, addresses[k], size * count, 0, params_end);
    for (uint64_t e = 0; e < count; e++) copy(out + (e * 32 + k) * size, from + e * size, size);
  }
}

ALWAYS_INLINE void store(sg_warp_env* env, uint32_t space, uint64_t size, uint64_t count,
                         const uint64_t* addresses, uint32_t mask, const uint8_t* in) {
  EACH_LANE(mask, k) {
    uint8_t* to = checked(env, space, k, addresses[k], size * count, 1, NULL);
    for (uint64_t e = 0; e < count; e++) copy(to + e * size, in + (e * 32 + k) * size, size);
  }
}

#define BY_SIZE(CALL)      \
  switch (spec >> 4 & 7) { \
    case 0:                \
      CALL(1);             \
      break;               \
    case 1:                \
      CALL(2);             \
      break;               \
    case 2:                \
      CALL(4);             \
      break;               \
    case 3:                \
      CALL(8);             \
      break;               \
    default:               \
      CALL(16);            \
      break;               \
  }

void sgrt_load(sg_warp_env* env, uint32_t spec, uint32_t param_bytes, const uint64_t* addresses,
               uint32_t mask, void* out) {
  uint32_t space = spec & 15, count = spec >> 8;
  const uint8_t* end = env->params + param_bytes;
#define LOAD(size) load(env, space, size, count, addresses, mask, out, end)
  BY_SIZE(LOAD)
#undef LOAD
}

void sgrt_store(sg_warp_env* env, uint32_t spec, const uint64_t* addresses, uint32_t mask,
                const void* in) {
  uint32_t space = spec & 15, count = spec >> 8;
#define STORE(size) store(env, space, size, count, addresses, mask, in)
  BY_SIZE(STORE)
#undef STORE
}

void sgrt_resolve(sg_warp_env* env, uint32_t space, uint32_t bytes, const uint64_t* addresses,
                  uint32_t mask, uint64_t* out) {
  EACH_LANE(mask, k) out[k] = (uint64_t)checked(env, space, k, addresses[k], bytes, 1, NULL);
}
