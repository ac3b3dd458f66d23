/* uint64_t sgrt_globaltimer(void): %globaltimer, nanoseconds of wall time. */
#include <time.h>

#include "softgpu/exec/device/device.h"

uint64_t sgrt_globaltimer(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
