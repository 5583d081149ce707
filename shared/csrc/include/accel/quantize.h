// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The quantizer of ZeRO++ (Wang et al., arXiv:2306.10209) as kernels: the same bits as
// accel_ops.quantizers.quantizer in plain torch, which has the formulas. A group's size is a multiple of 8, and
// pointers are aligned to 16 bytes (integers to a pack of 8); callers check it.
#pragma once

#include "accel/device.h"

namespace accel {

constexpr int kPack = 8; // elements an access

// Unsigned integers in the order of the floats; NaN is above all.
ACCEL_DEVICE uint32_t key_of(float value) {
  const uint32_t bits = bits_of(value);
  return value != value ? 0xffffffffu : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
ACCEL_DEVICE float value_of(uint32_t key) { return float_of(key & 0x80000000u ? key & 0x7fffffffu : ~key); }

// The numbers of a group: step and offset are kept with its integers.
struct Grid {
  float scale, step, offset;
};

// The range of a group: of |x|, or of x and -x.
template <bool asymmetric>
struct Range {
  uint32_t highest = 0, negated = 0;

  ACCEL_DEVICE void add(float value) {
    const uint32_t key = asymmetric ? key_of(value) : bits_of(value) & 0x7fffffffu;
    highest = key > highest ? key : highest;
    if (asymmetric) {
      const uint32_t other = key_of(-value);
      negated = other > negated ? other : negated;
    }
  }

  // Every operation is rounded on its own.
  template <int bits>
  ACCEL_DEVICE Grid grid() {
    highest = group_max(highest);
    if (asymmetric) negated = group_max(negated);
    const float high = asymmetric ? value_of(highest) : float_of(highest);
    const float low = asymmetric ? -value_of(negated) : 0.0f;
    const float span = asymmetric ? high - low : high;
    const float scale = span == 0.0f ? 1.0f : power_over(asymmetric ? bits : bits - 1, span);
    return {scale, power_over(0, scale), asymmetric ? (high + low) / 2.0f : 0.0f};
  }
};

template <int bits, bool asymmetric>
ACCEL_DEVICE int encode(float value, const Grid& grid) {
  constexpr int limit = 1 << (bits - 1);
  const float level = round_even((asymmetric ? value - grid.offset : value) * grid.scale);
  return level >= limit - 1 ? limit - 1 : level <= -limit ? -limit : static_cast<int>(level == level ? level : 0.0f);
}

template <bool asymmetric>
ACCEL_DEVICE float decode(int level, float step, float offset) {
  const float value = static_cast<float>(level) * step;
  return asymmetric ? value + offset : value;
}

// Bytes of a pack of integers; of two of 4 bits the first is in the low half.
template <int bits>
using Levels = Pack<uint8_t, bits>;

template <int bits>
ACCEL_DEVICE void put(Levels<bits>& levels, int k, int level) {
  if (bits == 8) levels.at[k] = static_cast<uint8_t>(level);
  else if (k % 2 == 0) levels.at[k / 2] = static_cast<uint8_t>(level & 15);
  else levels.at[k / 2] = static_cast<uint8_t>(levels.at[k / 2] | (level & 15) << 4);
}
template <int bits>
ACCEL_DEVICE int take(const Levels<bits>& levels, int k) {
  if (bits == 8) return static_cast<int8_t>(levels.at[k]);
  return (static_cast<int>(levels.at[k / 2] >> (k % 2 * 4) & 15) ^ 8) - 8;
}

// Numbers of a tensor.
template <class In>
struct Values {
  const typename In::Stored* in;

  ACCEL_DEVICE void load(int64_t i, float* values) const {
    const auto pack = *reinterpret_cast<const Pack<typename In::Stored, kPack>*>(in + i);
    for (int k = 0; k < kPack; ++k) values[k] = In::load(pack.at[k]);
  }
};

// Sums of the same place in the parts of all devices, one by one; the parameters of a group are step (and offset).
template <int bits, bool asymmetric>
struct Sums {
  const uint8_t* in;
  const float* parameters;
  int64_t in_width, size;
  int32_t devices;

  ACCEL_DEVICE void load(int64_t i, float* values) const {
    for (int32_t device = 0; device < devices; ++device) {
      const int64_t at = device * size + i;
      const float* of = parameters + at / in_width * (asymmetric ? 2 : 1);
      const float step = of[0], offset = asymmetric ? of[1] : 0.0f;
      const auto levels = *reinterpret_cast<const Levels<bits>*>(in + at / 8 * bits);
      for (int k = 0; k < kPack; ++k) {
        const float value = decode<asymmetric>(take<bits>(levels, k), step, offset);
        values[k] = device == 0 ? value : values[k] + value;
      }
    }
  }
};

// The place of a group in the order of the first all-to-all of qgZ: (node, device, slice, row) becomes
// (slice, device, node, row).
ACCEL_DEVICE int64_t place_of(int64_t from, int64_t all, int32_t pipeline, int32_t nodes, int32_t devices) {
  const int64_t run = all / (static_cast<int64_t>(pipeline) * nodes * devices);
  const int64_t row = from % run, slice = from / run % pipeline, part = from / run / pipeline;
  const int64_t node = part / devices, device = part % devices;
  return ((slice * devices + device) * nodes + node) * run + row;
}

// One block a group: read `from`, write group `to`. The second pass finds the group in the cache.
template <int bits, bool asymmetric, class Source>
ACCEL_DEVICE void quantize_group(
    uint8_t* out, float* parameters, const Source& source, int64_t width, int64_t from, int64_t to) {
  float values[kPack];
  Range<asymmetric> range;
  const int64_t stride = static_cast<int64_t>(items()) * kPack;
  for (int64_t i = static_cast<int64_t>(item()) * kPack; i < width; i += stride) {
    source.load(from * width + i, values);
    for (int k = 0; k < kPack; ++k) range.add(values[k]);
  }
  const Grid grid = range.template grid<bits>();
  if (item() == 0) {
    parameters[to * (asymmetric ? 2 : 1)] = grid.step;
    if (asymmetric) parameters[to * 2 + 1] = grid.offset;
  }
  for (int64_t i = static_cast<int64_t>(item()) * kPack; i < width; i += stride) {
    source.load(from * width + i, values);
    Levels<bits> levels{};
    for (int k = 0; k < kPack; ++k) put<bits>(levels, k, encode<bits, asymmetric>(values[k], grid));
    *reinterpret_cast<Levels<bits>*>(out + (to * width + i) / 8 * bits) = levels;
  }
}

template <class Out, int bits, bool asymmetric>
ACCEL_DEVICE void dequantize(
    typename Out::Stored* out, const uint8_t* in, const float* parameters, int64_t width, int64_t size) {
  const int64_t stride = static_cast<int64_t>(groups()) * items() * kPack;
  for (int64_t i = (static_cast<int64_t>(group()) * items() + item()) * kPack; i < size; i += stride) {
    // A division of 64 bits takes several times one of 32.
    const int64_t of = size >> 32 ? i / width : static_cast<uint32_t>(i) / static_cast<uint32_t>(width);
    const float step = parameters[asymmetric ? 2 * of : of], offset = asymmetric ? parameters[2 * of + 1] : 0.0f;
    const auto levels = *reinterpret_cast<const Levels<bits>*>(in + i / 8 * bits);
    Pack<typename Out::Stored, kPack> made;
    for (int k = 0; k < kPack; ++k) made.at[k] = Out::store(decode<asymmetric>(take<bits>(levels, k), step, offset));
    *reinterpret_cast<Pack<typename Out::Stored, kPack>*>(out + i) = made;
  }
}

} // namespace accel

// A family of kernels a line: the type's name, bits, and whether groups have an offset.
#define ACCEL_QUANTIZE(type, stored, name, bits, kind, asymmetric)                                                      \
  ACCEL_KERNEL accel_quantize_##name##_##bits##_##kind(                                                                 \
      uint8_t* out, float* parameters, const stored* in, int64_t width, int32_t pipeline, int32_t nodes,                \
      int32_t devices) {                                                                                                \
    const int64_t to = accel::place_of(accel::group(), accel::groups(), pipeline, nodes, devices);                      \
    accel::quantize_group<bits, asymmetric>(                                                                            \
        out, parameters, accel::Values<accel::type>{in}, width, accel::group(), to);                                    \
  }                                                                                                                     \
  ACCEL_EXPORT(accel_quantize_##name##_##bits##_##kind);

#define ACCEL_DEQUANTIZE(type, stored, name, bits, kind, asymmetric)                                                    \
  ACCEL_KERNEL accel_dequantize_##name##_##bits##_##kind(                                                               \
      stored* out, const uint8_t* in, const float* parameters, int64_t width, int64_t size) {                           \
    accel::dequantize<accel::type, bits, asymmetric>(out, in, parameters, width, size);                                 \
  }                                                                                                                     \
  ACCEL_EXPORT(accel_dequantize_##name##_##bits##_##kind);

#define ACCEL_REDUCE(bits, kind, asymmetric)                                                                            \
  ACCEL_KERNEL accel_reduce_##bits##_##kind(                                                                            \
      uint8_t* out, float* parameters, const uint8_t* in, const float* in_parameters, int64_t width, int64_t in_width,  \
      int64_t size, int32_t devices) {                                                                                  \
    accel::quantize_group<bits, asymmetric>(                                                                            \
        out, parameters, accel::Sums<bits, asymmetric>{in, in_parameters, in_width, size, devices}, width,              \
        accel::group(), accel::group());                                                                                \
  }                                                                                                                     \
  ACCEL_EXPORT(accel_reduce_##bits##_##kind);

#define ACCEL_OF_BITS(bits, kind, asymmetric)                       \
  ACCEL_QUANTIZE(Float32, float, f32, bits, kind, asymmetric)       \
  ACCEL_QUANTIZE(Float16, uint16_t, f16, bits, kind, asymmetric)    \
  ACCEL_QUANTIZE(Bfloat16, uint16_t, bf16, bits, kind, asymmetric)  \
  ACCEL_DEQUANTIZE(Float32, float, f32, bits, kind, asymmetric)     \
  ACCEL_DEQUANTIZE(Float16, uint16_t, f16, bits, kind, asymmetric)  \
  ACCEL_REDUCE(bits, kind, asymmetric)
ACCEL_OF_BITS(8, sym, false)
ACCEL_OF_BITS(8, asym, true)
ACCEL_OF_BITS(4, sym, false)
ACCEL_OF_BITS(4, asym, true)
