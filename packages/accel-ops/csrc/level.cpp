// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Selects the instruction set at run time. The compiler's target_clones would select as well, but offers no way to
// override the selection, which tests need to compare the bits of all levels.
#include "level.h"

#include <atomic>

#include "accel_ops.h"

namespace accel_ops {
namespace {

int32_t detect() {
#if ACCEL_X86_LEVELS
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4")) return 4;
  if (__builtin_cpu_supports("x86-64-v3")) return 3;
  return 1;
#elif defined(__x86_64__)
  return 1;
#else
  return 0;
#endif
}

const Level* find(int32_t number) {
#if ACCEL_X86_LEVELS
  if (number == 4) return &v4::kLevel;
  if (number == 3) return &v3::kLevel;
#endif
  return &base::kLevel;
}

const int32_t g_best = detect();
std::atomic<int32_t> g_number{g_best};
std::atomic<const Level*> g_level{find(g_best)};

} // namespace

const Level& level() {
  return *g_level.load(std::memory_order_relaxed);
}

} // namespace accel_ops

int32_t accel_best_level() {
  return accel_ops::g_best;
}

int32_t accel_level() {
  return accel_ops::g_number;
}

int accel_set_level(int32_t number) {
  using namespace accel_ops;
  const int32_t lowest = g_best == 0 ? 0 : 1;
  if (number < lowest || number > g_best || number == 2) return ACCEL_BAD_LEVEL;
  g_number = number;
  g_level = find(number);
  return ACCEL_OK;
}
