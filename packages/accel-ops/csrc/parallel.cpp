// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "parallel.h"

#include "accel_ops.h"
#include "level.h"

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace accel_ops {
namespace {

bool g_forked = false;

#if !defined(_WIN32)
[[maybe_unused]] const int g_handler = pthread_atfork(nullptr, nullptr, [] { g_forked = true; });
#endif

} // namespace

bool forked() {
  return g_forked;
}

} // namespace accel_ops

void accel_triad(float* a, const float* b, const float* c, float s, int64_t n, int32_t threads) {
  const auto& kernels = accel_ops::level();
  accel_ops::parallel_for(n, 1 << 15, threads, [&](int64_t begin, int64_t end) {
    kernels.triad(a + begin, b + begin, c + begin, s, end - begin);
  });
}

int32_t accel_has_openmp() {
#if defined(_OPENMP)
  return 1;
#else
  return 0;
#endif
}
