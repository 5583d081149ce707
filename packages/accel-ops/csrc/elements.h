// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Elements of the three float types, which kernels read and write as float32.
#pragma once

#include <cstdint>
#include <cstring>

#include "accel_ops.h"
#include "level.h"

namespace accel_ops {

inline bool is_float_type(int32_t type) {
  return type == ACCEL_F32 || type == ACCEL_BF16 || type == ACCEL_F16;
}

inline int64_t element_size(int32_t type) {
  return type == ACCEL_F32 ? 4 : 2;
}

// Null for null.
inline void* element(const void* data, int64_t at, int32_t type) {
  return data ? static_cast<char*>(const_cast<void*>(data)) + at * element_size(type) : nullptr;
}

// Returns n elements as floats: the memory itself, or the buffer.
inline float* widened(const Level& kernels, const void* data, int32_t type, float* buffer, int64_t n) {
  if (type == ACCEL_F32) return static_cast<float*>(const_cast<void*>(data));
  (type == ACCEL_BF16 ? kernels.from_bf16 : kernels.from_f16)(static_cast<const uint16_t*>(data), buffer, n);
  return buffer;
}

inline void narrow(const Level& kernels, const float* values, void* to, int32_t type, int64_t n) {
  if (type == ACCEL_F32)
    std::memcpy(to, values, static_cast<std::size_t>(n) * sizeof(float));
  else
    (type == ACCEL_BF16 ? kernels.to_bf16 : kernels.to_f16)(values, static_cast<uint16_t*>(to), n);
}

} // namespace accel_ops
