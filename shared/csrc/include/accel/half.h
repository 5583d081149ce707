// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Element types in memory, for loops and kernels that compute in float, and conversions that round to nearest even. On
// the host they use integer arithmetic and selects only, which compilers vectorise, and which give the same bits on
// every instruction set; device.h has those that differ on devices.
#pragma once

#if !defined(ACCEL_DEVICE)
#define ACCEL_DEVICE inline
#endif

#if !defined(ACCEL_SYCL) && !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)
#include <cstdint>
#include <cstring>

namespace accel {

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float from_f16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t rest = half & 0x7fffu;
  const float normal = float_of((rest << 13) + (112u << 23));
  const float infinite = float_of((rest << 13) + (224u << 23));
  // Below the smallest normal number the 10 bits are an integer in units of 2^-24.
  const float tiny = static_cast<float>(static_cast<int32_t>(rest)) * 0x1p-24f;
  const float magnitude = rest >= 0x7c00u ? infinite : rest < 0x0400u ? tiny : normal;
  return float_of(bits_of(magnitude) | sign);
}

inline uint16_t to_f16(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t rest = bits & 0x7fffffffu;
  const uint32_t normal = (rest - (112u << 23) + 0xfffu + ((rest >> 13) & 1u)) >> 13;
  // Adding 0.5 puts the unit of the result's last place, 2^-24, where float rounds.
  const uint32_t tiny = bits_of(float_of(rest) + 0.5f) - bits_of(0.5f);
  const uint32_t finite = rest < (113u << 23) ? tiny : normal;
  // 65520 is the first number that rounds to infinity.
  const uint32_t large = rest > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return static_cast<uint16_t>(sign | (rest >= 0x477ff000u ? large : finite));
}

} // namespace accel
#endif

namespace accel {

ACCEL_DEVICE float from_bf16(uint16_t half) { return float_of(static_cast<uint32_t>(half) << 16); }

// Every NaN becomes 0x7fc0, as in torch.
ACCEL_DEVICE uint16_t to_bf16(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>(value != value ? 0x7fc0u : rounded);
}

struct Float32 {
  using Stored = float;
  static ACCEL_DEVICE float load(float stored) { return stored; }
  static ACCEL_DEVICE float store(float value) { return value; }
};
struct Float16 {
  using Stored = uint16_t;
  static ACCEL_DEVICE float load(uint16_t stored) { return from_f16(stored); }
  static ACCEL_DEVICE uint16_t store(float value) { return to_f16(value); }
};
struct Bfloat16 {
  using Stored = uint16_t;
  static ACCEL_DEVICE float load(uint16_t stored) { return from_bf16(stored); }
  static ACCEL_DEVICE uint16_t store(float value) { return to_bf16(value); }
};

} // namespace accel
