/* mbarrier: a word of 64 bits in shared memory that counts arrivals and phases.
 *
 *   void sgrt_mbarrier_OP(uint32_t mask, const uint64_t* place, ...);
 *
 * Bits 0 to 19 are the arrivals that the phase still awaits, 20 to 39 those that the next one will,
 * bit 63 is the phase's parity. A state is the word before the arrival. Shared memory belongs to warps
 * of one OS thread and needs no atomic instruction; lanes arrive in order.
 */
#include "softgpu/exec/device/device.h"

#define COUNT UINT64_C(0xfffff)
#define PARITY (UINT64_C(1) << 63)

static inline uint64_t word(uint64_t pending, uint64_t next, uint64_t parity) {
  return (pending & COUNT) | (next & COUNT) << 20 | parity;
}

static inline uint64_t* at(uint64_t place) { return (uint64_t*)place; }

/* The phase ends with its last arrival. */
static inline uint64_t after(uint64_t old, uint64_t arrivals, uint64_t fewer) {
  const uint64_t next = (old >> 20) - fewer, pending = (old - arrivals) & COUNT;
  if (pending == 0) return word(next, next, (old ^ PARITY) & PARITY);
  return word(pending, next, old & PARITY);
}

void sgrt_mbarrier_init(uint32_t mask, const uint64_t* place, const uint32_t* count) {
  SG_EACH_LANE(mask, k) *at(place[k]) = word(count[k], count[k], 0);
}

void sgrt_mbarrier_inval(uint32_t mask, const uint64_t* place) {
  SG_EACH_LANE(mask, k) *at(place[k]) = 0;
}

void sgrt_mbarrier_arrive(uint32_t mask, const uint64_t* place, const uint32_t* count,
                          uint64_t* state) {
  SG_EACH_LANE(mask, k) {
    state[k] = *at(place[k]);
    *at(place[k]) = after(state[k], count[k], 0);
  }
}

void sgrt_mbarrier_arrive_drop(uint32_t mask, const uint64_t* place, const uint32_t* count,
                               uint64_t* state) {
  SG_EACH_LANE(mask, k) {
    state[k] = *at(place[k]);
    *at(place[k]) = after(state[k], count[k], count[k]);
  }
}

/* Has the phase of `state` ended? */
void sgrt_mbarrier_test_wait(uint32_t mask, const uint64_t* place, const uint64_t* state,
                             uint32_t* complete) {
  SG_EACH_LANE(mask, k) complete[k] = ((*at(place[k]) ^ state[k]) & PARITY) != 0;
}
