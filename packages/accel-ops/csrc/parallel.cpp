// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "parallel.h"

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
