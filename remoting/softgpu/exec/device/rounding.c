/* Arithmetic in the rounding modes .rz .rm .rp, exact: the hardware rounds, with MXCSR changed for
 * the time of one helper. All 32 lanes are computed, whatever is active.
 *
 *   void sgrt_OP_MODE_TYPE(const T* a, const T* b, T* out);          OP: add mul div (sub: negate
 * b) void sgrt_fma_MODE_TYPE(const T* a, const T* b, const T* c, T* out); void
 * sgrt_sqrt_MODE_TYPE(const T* a, T* out); void sgrt_rcp_MODE_TYPE(const T* a, T* out); void
 * sgrt_cvt_MODE_f32_f64(const double* a, float* out); void sgrt_cvt_MODE_F_I(const I* a, F* out);
 * F: f32 f64; I: s32 u32 s64 u64
 *
 * MODE: rz rm rp; TYPE: f32 f64. A helper that is abandoned midway leaves MXCSR changed; the
 * runtime restores it before the thread runs anything else.
 */
#include <immintrin.h>

#include "softgpu/exec/device/device.h"

enum { MXCSR_DEFAULT = 0x1f80 };

/* The memory clobbers keep the loads behind the change and the stores before its end, and with
 * them everything that is computed in between. */
static inline void set_mxcsr(unsigned value) {
  __asm__ volatile("ldmxcsr %0" : : "m"(value) : "memory");
}

static inline float convert_f32(int64_t value) {
  return _mm_cvtss_f32(_mm_cvtsi64_ss(_mm_setzero_ps(), value));
}
static inline double convert_f64(int64_t value) {
  return _mm_cvtsd_f64(_mm_cvtsi64_sd(_mm_setzero_pd(), value));
}
/* An unsigned number with the top bit is halved with its last bit kept as a sticky bit, then
 * doubled, which is exact. */
static inline float convert_f32_u64(uint64_t value) {
  if ((int64_t)value >= 0) return convert_f32((int64_t)value);
  return 2 * convert_f32((int64_t)(value >> 1 | (value & 1)));
}
static inline double convert_f64_u64(uint64_t value) {
  if ((int64_t)value >= 0) return convert_f64((int64_t)value);
  return 2 * convert_f64((int64_t)(value >> 1 | (value & 1)));
}

#define MODE rz
#define ROUNDING 0x6000
#include "softgpu/exec/device/rounding_mode.inc"
#undef MODE
#undef ROUNDING

#define MODE rm
#define ROUNDING 0x2000
#include "softgpu/exec/device/rounding_mode.inc"
#undef MODE
#undef ROUNDING

#define MODE rp
#define ROUNDING 0x4000
#include "softgpu/exec/device/rounding_mode.inc"
