// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// What ZeRO-Offload does with a gradient in host memory, in one pass: adds it to the accumulated one, converts it to the
// type of the optimizer's gradients, copies it there, and sums its squares.
#include <cstring>
#include <type_traits>

#include "accel_ops.h"
#include "chunks.h"
#include "level.h"

namespace accel_ops {
namespace {

bool is_float_type(int32_t type) {
  return type == ACCEL_F32 || type == ACCEL_BF16 || type == ACCEL_F16;
}

template <class Pointer>
Pointer element(Pointer data, int64_t at, int32_t type) {
  using Byte = std::conditional_t<std::is_same_v<Pointer, const void*>, const char, char>;
  return static_cast<Byte*>(data) + at * (type == ACCEL_F32 ? 4 : 2);
}

// Returns n elements as floats: the memory itself, or the buffer.
const float* widened(const Level& kernels, const void* data, int32_t type, float* buffer, int64_t n) {
  if (type == ACCEL_F32) return static_cast<const float*>(data);
  (type == ACCEL_BF16 ? kernels.from_bf16 : kernels.from_f16)(static_cast<const uint16_t*>(data), buffer, n);
  return buffer;
}

void narrow(const Level& kernels, const float* values, void* to, int32_t type, int64_t n) {
  if (type == ACCEL_F32)
    std::memcpy(to, values, static_cast<std::size_t>(n) * sizeof(float));
  else
    (type == ACCEL_BF16 ? kernels.to_bf16 : kernels.to_f16)(values, static_cast<uint16_t*>(to), n);
}

// Adds the gradient to the accumulated one, rounded to their type as torch's add_ does.
void accumulate(const Level& kernels, const void* grad, void* accumulated, int32_t type, int64_t n) {
  float left[kChunk], right[kChunk], sum[kChunk];
  const float* a = widened(kernels, accumulated, type, left, n);
  const float* b = widened(kernels, grad, type, right, n);
  for (int64_t i = 0; i < n; ++i) sum[i] = a[i] + b[i];
  narrow(kernels, sum, accumulated, type, n);
}

double transfer(const accel_gradient& g, int64_t at, int64_t n) {
  const Level& kernels = level();
  const void* value = element<const void*>(g.grad, at, g.grad_type);
  if (g.accumulated) {
    void* kept = element<void*>(g.accumulated, at, g.grad_type);
    if (g.add)
      accumulate(kernels, value, kept, g.grad_type, n);
    else
      std::memcpy(kept, value, static_cast<std::size_t>(n) * (g.grad_type == ACCEL_F32 ? 4 : 2));
    value = kept;
  }
  if (!g.destination) return 0;
  float buffer[kChunk];
  const float* values = widened(kernels, value, g.grad_type, buffer, n);
  void* to = element<void*>(g.destination, at, g.destination_type);
  if (g.grad_type == g.destination_type)
    std::memcpy(to, value, static_cast<std::size_t>(n) * (g.grad_type == ACCEL_F32 ? 4 : 2));
  else
    narrow(kernels, values, to, g.destination_type, n);
  return kernels.sum_of_squares(values, n);
}

} // namespace
} // namespace accel_ops

int accel_copy_gradient(const accel_gradient* gradient, double* result) {
  using namespace accel_ops;
  const accel_gradient& g = *gradient;
  if (!is_float_type(g.grad_type) || !is_float_type(g.destination_type)) return ACCEL_BAD_TYPE;
  const auto work = [&](int64_t begin, int64_t end, double* sums) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t at = chunk * kChunk, left = g.size - at;
      sums[chunk] = transfer(g, at, left < kChunk ? left : kChunk);
    }
  };
  return sum_of_chunks(chunk_count(g.size), g.threads, work, result);
}
