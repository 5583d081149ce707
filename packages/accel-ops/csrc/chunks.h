// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Sums over tensors, in double, in chunks that do not depend on the division among threads; so neither does the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "accel_ops.h"
#include "parallel.h"

namespace accel_ops {

constexpr int64_t kChunk = 4096;  // elements
constexpr int64_t kChunksPerThread = 16;

inline int64_t chunk_count(int64_t size) {
  return (size + kChunk - 1) / kChunk;
}

// Calls work(begin, end, sums) for ranges of chunks, in threads. It writes the sum of each chunk to sums[chunk]; they are
// added in their order.
template <class Work>
int sum_of_chunks(int64_t chunks, int32_t threads, const Work& work, double* result) {
  auto* sums = static_cast<double*>(std::malloc(static_cast<std::size_t>(chunks + 1) * sizeof(double)));
  if (!sums) return ACCEL_NO_MEMORY;
  parallel_for(chunks, kChunksPerThread, threads, [&](int64_t begin, int64_t end) { work(begin, end, sums); });
  double sum = 0;
  for (int64_t i = 0; i < chunks; ++i) sum += sums[i];
  std::free(sums);
  *result = sum;
  return ACCEL_OK;
}

} // namespace accel_ops
