// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Threads of OpenMP: torch's own pool where torch is loaded, as both then use one runtime library.
#pragma once

#include <cstdint>

namespace accel_ops {

// True in a child of fork(). Threads that the parent had started do not exist there, and OpenMP would wait for them
// forever. Whether there were any is unknown, because torch starts them too; such a child uses one thread.
bool forked();

// Calls work(begin, end) for contiguous parts of [0, total), in at most `threads` threads, and in no more than one for
// every `grain` elements begun.
template <class Work>
void parallel_for(int64_t total, int64_t grain, int32_t threads, const Work& work) {
  const int64_t useful = grain > 0 ? (total + grain - 1) / grain : 1;
  const int64_t count = forked() ? 1 : useful < threads ? useful : threads;
  if (count <= 1) {
    if (total > 0) work(int64_t{0}, total);
    return;
  }
  // Parts are multiples of 64 elements, a cache line or more in every type: threads do not write to the same line.
  const int64_t part = ((total + count - 1) / count + 63) / 64 * 64;
#pragma omp parallel for num_threads(static_cast<int>(count)) schedule(static, 1)
  for (int64_t index = 0; index < count; ++index) {
    const int64_t begin = index * part;
    const int64_t end = begin + part < total ? begin + part : total;
    if (begin < end) work(begin, end);
  }
}

} // namespace accel_ops
