// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Threads: OpenMP's, which are torch's own where torch is loaded.
#pragma once

#include <cstdint>

namespace accel_host {

// True in a child of fork(). Threads that its parent had started are gone there, and OpenMP would wait for them; as
// torch starts the same ones, whether there were any can not be told.
bool forked();

// Calls work(begin, end) for contiguous parts of [0, total), in as many threads as pay: one for every begun `grain`.
template <class Work>
void parallel_for(int64_t total, int64_t grain, int32_t threads, const Work& work) {
  const int64_t most = grain > 0 ? (total + grain - 1) / grain : 1;
  const int64_t count = forked() ? 1 : most < threads ? most : threads;
  if (count <= 1) {
    if (total > 0) work(int64_t{0}, total);
    return;
  }
  // Whole cache lines of every type: no two threads write into one.
  const int64_t part = ((total + count - 1) / count + 63) / 64 * 64;
#pragma omp parallel for num_threads(static_cast<int>(count)) schedule(static, 1)
  for (int64_t index = 0; index < count; ++index) {
    const int64_t begin = index * part;
    const int64_t end = begin + part < total ? begin + part : total;
    if (begin < end) work(begin, end);
  }
}

} // namespace accel_host
