// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Division of a power of two, rounded to nearest even, for devices whose own division is not: OpenCL and Level Zero
// let it be off by 2.5 units in the last place unless a program is built with an option that libsycl does not pass on.
#pragma once

namespace accel {

// A float that is not negative as significand * 2^(exponent - 150), the significand in [2^23, 2^24).
struct Parts {
  uint32_t significand;
  int32_t exponent;
};
ACCEL_DEVICE Parts parts_of(uint32_t bits) {
  Parts parts{bits & 0x7fffffu, static_cast<int32_t>(bits >> 23)};
  if (parts.exponent) return {parts.significand | 0x800000u, parts.exponent};
  for (parts.exponent = 1; !(parts.significand & 0x800000u); --parts.exponent) parts.significand <<= 1;
  return parts;
}

// The bits of 2^exponent / value, for bits of a number above zero. `guess` is 2^47 / significand, off by a few units.
ACCEL_DEVICE uint32_t power_over_bits(int32_t exponent, Parts value, float guess) {
  const int64_t power = static_cast<int64_t>(1) << 47, divisor = value.significand;
  int64_t quotient = static_cast<int64_t>(guess), rest = power - quotient * divisor;
  for (; rest < 0; rest += divisor) --quotient;
  for (; rest >= divisor; rest -= divisor) ++quotient;
  const int32_t field = exponent + 253 - value.exponent; // the exponent's bits, if the result is normal
  if (field >= 255) return 0x7f800000u;
  // No tie is possible: the quotient is exact only where the significand is a power of two.
  if (field >= 1) {
    const uint32_t up = 2 * rest > divisor;
    return (static_cast<uint32_t>(field) << 23) + static_cast<uint32_t>(quotient - (1 << 23)) + up;
  }
  const int32_t shift = 1 - field; // 1 or 2: the value is below 2^128
  const int64_t kept = quotient >> shift, lost = quotient - (kept << shift);
  return static_cast<uint32_t>(kept + (lost >> (shift - 1)));
}

} // namespace accel
