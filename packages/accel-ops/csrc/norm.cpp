// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The sum of squares over many tensors in one pass: gives the norm, and is infinite or NaN where an element is.
#include "accel_ops.h"
#include "chunks.h"
#include "elements.h"

namespace accel_ops {
namespace {

// Computes the sums of the chunks [begin, end), which are numbered over all tensors.
void sum_chunks(const accel_tensor_lists& lists, int64_t begin, int64_t end, double* sums) {
  const Level& kernels = level();
  int64_t first = 0;
  for (int64_t i = 0; i < lists.tensors && first < end; first += chunk_count(lists.sizes[i++])) {
    const int64_t last = first + chunk_count(lists.sizes[i]);
    for (int64_t chunk = begin > first ? begin : first; chunk < end && chunk < last; ++chunk) {
      const int64_t at = (chunk - first) * kChunk, left = lists.sizes[i] - at, n = left < kChunk ? left : kChunk;
      float buffer[kChunk];
      const void* const data = element(lists.grads[i], at, lists.grad_type);
      sums[chunk] = kernels.sum_of_squares(widened(kernels, data, lists.grad_type, buffer, n), n);
    }
  }
}

} // namespace
} // namespace accel_ops

int accel_sum_of_squares(const accel_tensor_lists* lists, double* result) {
  using namespace accel_ops;
  if (!is_float_type(lists->grad_type)) return ACCEL_BAD_TYPE;
  int64_t chunks = 0;
  for (int64_t i = 0; i < lists->tensors; ++i) chunks += chunk_count(lists->sizes[i]);
  return sum_of_chunks(
      chunks, lists->threads,
      [&](int64_t begin, int64_t end, double* sums) { sum_chunks(*lists, begin, end, sums); }, result);
}
