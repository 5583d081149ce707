// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// What ZeRO-Offload does with a gradient in host memory, in one pass: adds it to the accumulated one, converts it to the
// type of the optimizer's gradients, copies it there, and sums its squares.
#include <cstring>

#include "accel_ops.h"
#include "chunks.h"
#include "elements.h"

namespace accel_ops {
namespace {

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
  const void* value = element(g.grad, at, g.grad_type);
  if (g.accumulated) {
    void* kept = element(g.accumulated, at, g.grad_type);
    if (g.add)
      accumulate(kernels, value, kept, g.grad_type, n);
    else
      std::memcpy(kept, value, static_cast<std::size_t>(n) * (g.grad_type == ACCEL_F32 ? 4 : 2));
    value = kept;
  }
  if (!g.destination) return 0;
  float buffer[kChunk];
  const float* values = widened(kernels, value, g.grad_type, buffer, n);
  void* to = element(g.destination, at, g.destination_type);
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
