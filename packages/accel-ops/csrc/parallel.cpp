// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "parallel.h"

#include "accel_ops.h"

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

int32_t accel_has_openmp() {
#if defined(_OPENMP)
  return 1;
#else
  return 0;
#endif
}
