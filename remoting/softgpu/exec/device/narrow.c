/* Conversions to and from eight-bit floating point, and finding a set bit.
 *
 *   void sgrt_cvt_to_FORMAT(uint32_t count, const float* value, uint8_t* out);
 *   void sgrt_cvt_from_FORMAT(uint32_t count, const uint8_t* value, float* out);
 *   void sgrt_fns(const uint32_t* bits, const uint32_t* base, const int32_t* offset, uint32_t*
 * out);
 *
 * FORMAT: e4m3 (no infinity; only 0x7f and 0xff are NaN) or e5m2. Rounded to nearest, ties to even;
 * what is too large, infinity too, becomes the largest finite number, NaN becomes 0x7f.
 */
#include <math.h>

#include "softgpu/exec/device/device.h"

static inline float power_of_two(int exponent) {
  const uint32_t bits = (uint32_t)(exponent + 127) << 23;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint8_t to_narrow(float value, int fraction, int bias, uint8_t largest) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint8_t sign = (uint8_t)(bits >> 24 & 0x80);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return 0x7f;
  if (bits == 0x7f800000u) return sign | largest;
  int exponent = (int)(bits >> 23) - 127;
  if (exponent < 1 - bias) exponent = 1 - bias;
  /* In units of the last place, exact; nearbyintf rounds ties to even. */
  const float size = value < 0 ? -value : value;
  const int units = (int)nearbyintf(size * power_of_two(fraction - exponent));
  const int number = units + ((exponent + bias - 1) << fraction);
  return sign | (number > largest ? largest : (uint8_t)number);
}

static inline float from_narrow(uint8_t bits, int fraction, int bias) {
  const int exponent = (bits & 0x7f) >> fraction;
  const int part = bits & ((1 << fraction) - 1);
  const float size =
      exponent == 0 ? (float)part * power_of_two(1 - bias - fraction)
                    : (float)(part + (1 << fraction)) * power_of_two(exponent - bias - fraction);
  return bits & 0x80 ? -size : size;
}

void sgrt_cvt_to_e4m3(uint32_t count, const float* value, uint8_t* out) {
  for (uint32_t k = 0; k < count; ++k) out[k] = to_narrow(value[k], 3, 7, 0x7e);
}
void sgrt_cvt_to_e5m2(uint32_t count, const float* value, uint8_t* out) {
  for (uint32_t k = 0; k < count; ++k) out[k] = to_narrow(value[k], 2, 15, 0x7b);
}

void sgrt_cvt_from_e4m3(uint32_t count, const uint8_t* value, float* out) {
  for (uint32_t k = 0; k < count; ++k)
    out[k] = (value[k] & 0x7f) == 0x7f ? NAN : from_narrow(value[k], 3, 7);
}
void sgrt_cvt_from_e5m2(uint32_t count, const uint8_t* value, float* out) {
  for (uint32_t k = 0; k < count; ++k) {
    const uint8_t size = value[k] & 0x7f;
    if (size > 0x7c)
      out[k] = NAN;
    else if (size == 0x7c)
      out[k] = value[k] & 0x80 ? -INFINITY : INFINITY;
    else
      out[k] = from_narrow(value[k], 2, 15);
  }
}

/* The definition in the PTX manual. */
void sgrt_fns(const uint32_t* bits, const uint32_t* base, const int32_t* offset, uint32_t* out) {
  for (uint32_t k = 0; k < SG_LANES; ++k) {
    out[k] = 0xffffffffu;
    const int64_t steps = offset[k];
    if (base[k] > 31) continue;
    if (steps == 0) {
      if (bits[k] >> base[k] & 1) out[k] = base[k];
      continue;
    }
    int64_t count = steps < 0 ? -steps : steps;
    for (int position = (int)base[k]; position >= 0 && position<32; position += steps> 0 ? 1 : -1) {
      if (bits[k] >> position & 1 && --count == 0) {
        out[k] = (uint32_t)position;
        break;
      }
    }
  }
}
