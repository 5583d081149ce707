// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The sum of squares over many tensors in one pass: gives the norm, and is infinite or NaN where an element is.
#include "accel_ops.h"
#include "chunks.h"
#include "level.h"

namespace accel_ops {
namespace {

double chunk_sum(const Level& kernels, const void* data, int32_t type, int64_t at, int64_t n) {
  if (type == ACCEL_F32) return kernels.sum_of_squares(static_cast<const float*>(data) + at, n);
  float buffer[kChunk];
  const auto* halves = static_cast<const uint16_t*>(data) + at;
  (type == ACCEL_BF16 ? kernels.from_bf16 : kernels.from_f16)(halves, buffer, n);
  return kernels.sum_of_squares(buffer, n);
}

// Computes the sums of the chunks [begin, end), which are numbered over all tensors.
void sum_chunks(const accel_tensor_lists& lists, int64_t begin, int64_t end, double* sums) {
  const Level& kernels = level();
  int64_t first = 0;
  for (int64_t i = 0; i < lists.tensors && first < end; first += chunk_count(lists.sizes[i++])) {
    const int64_t last = first + chunk_count(lists.sizes[i]);
    for (int64_t chunk = begin > first ? begin : first; chunk < end && chunk < last; ++chunk) {
      const int64_t at = (chunk - first) * kChunk, left = lists.sizes[i] - at;
      sums[chunk] = chunk_sum(kernels, lists.grads[i], lists.grad_type, at, left < kChunk ? left : kChunk);
    }
  }
}

} // namespace
} // namespace accel_ops

int accel_sum_of_squares(const accel_tensor_lists* lists, double* result) {
  using namespace accel_ops;
  const int32_t type = lists->grad_type;
  if (type != ACCEL_F32 && type != ACCEL_BF16 && type != ACCEL_F16) return ACCEL_BAD_TYPE;
  int64_t chunks = 0;
  for (int64_t i = 0; i < lists->tensors; ++i) chunks += chunk_count(lists->sizes[i]);
  return sum_of_chunks(
      chunks, lists->threads,
      [&](int64_t begin, int64_t end, double* sums) { sum_chunks(*lists, begin, end, sums); }, result);
}
