/* Copies of a whole warp: ldmatrix, stmatrix, cp.async.
 *
 * A matrix is 8 rows of 8 elements of 16 bits. Lane 8q + i has the address of row i of matrix q;
 * lane 4i + t gets, or gives, elements 2t and 2t + 1 of row i (of column i when transposed).
 */
#include "softgpu/exec/device/ptx_access.h"

enum { ROW = 16 };

/* A row in shared memory; generic addresses must point there, too. */
ALWAYS_INLINE uint8_t* row_at(sg_warp_env* env, uint32_t space, uint64_t address) {
  uint64_t offset = space == SPACE_SHARED ? address : address - (uint64_t)env->shared;
  if ((address & (ROW - 1)) || !inside(offset, ROW, 0, env->shared_bytes)) {
    sgrt_access_fault(env, address, ROW);
  }
  return env->shared + offset;
}

/* Byte position, in its row, of element `e` (0 or 1) of lane `lane`, and which row it is in. */
ALWAYS_INLINE uint32_t row_of(uint32_t lane, uint32_t e, uint32_t transposed) {
  return transposed ? 2 * (lane & 3) + e : lane >> 2;
}
ALWAYS_INLINE uint32_t byte_of(uint32_t lane, uint32_t e, uint32_t transposed) {
  return 2 * (transposed ? lane >> 2 : 2 * (lane & 3) + e);
}

void sgrt_ldmatrix(sg_warp_env* env, uint32_t space, uint32_t count, uint32_t transposed,
                   const uint64_t* addresses, uint32_t* out) {
  for (uint32_t q = 0; q < count; q++) {
    const uint8_t* rows[8];
    for (uint32_t i = 0; i < 8; i++) rows[i] = row_at(env, space, addresses[8 * q + i]);
    for (uint32_t lane = 0; lane < SG_WARP_SIZE; lane++) {
      uint16_t pair[2];
      for (uint32_t e = 0; e < 2; e++) {
        memcpy(&pair[e], rows[row_of(lane, e, transposed)] + byte_of(lane, e, transposed), 2);
      }
      memcpy(&out[32 * q + lane], pair, sizeof pair);
    }
  }
}

void sgrt_stmatrix(sg_warp_env* env, uint32_t space, uint32_t count, uint32_t transposed,
                   const uint64_t* addresses, const uint32_t* in) {
  for (uint32_t q = 0; q < count; q++) {
    uint8_t* rows[8];
    for (uint32_t i = 0; i < 8; i++) rows[i] = row_at(env, space, addresses[8 * q + i]);
    for (uint32_t lane = 0; lane < SG_WARP_SIZE; lane++) {
      uint16_t pair[2];
      memcpy(pair, &in[32 * q + lane], sizeof pair);
      for (uint32_t e = 0; e < 2; e++) {
        memcpy(rows[row_of(lane, e, transposed)] + byte_of(lane, e, transposed), &pair[e], 2);
      }
    }
  }
}

/* The first `given` bytes come from the source, the rest of `bytes` are zeros. */
void sgrt_cp_async(sg_warp_env* env, uint32_t bytes, const uint64_t* to, const uint64_t* from,
                   const uint32_t* given, uint32_t mask) {
  EACH_LANE(mask, k) {
    uint32_t count = given[k] < bytes ? given[k] : bytes;
    uint8_t data[16] = {0};
    if ((to[k] | from[k]) & (bytes - 1)) {
      sgrt_access_fault(env, to[k] & (bytes - 1) ? to[k] : from[k], bytes);
    }
    if (!inside(to[k], bytes, 0, env->shared_bytes)) sgrt_access_fault(env, to[k], bytes);
    if (count) {
      const uint8_t* source = place(env, SPACE_GENERIC, k, from[k], count);
      if (!source) sgrt_access_fault(env, from[k], bytes);
      memcpy(data, source, count);
    }
    memcpy(env->shared + to[k], data, bytes);
  }
}
