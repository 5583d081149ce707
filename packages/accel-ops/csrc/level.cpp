// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Selects the instruction set at run time. The compiler's target_clones would select as well, but offers no way to
// override the selection, which tests need to compare the bits of all levels.
#include "level.h"

#include <atomic>

#include "accel_ops.h"

#if ACCEL_SVE
#include <sys/auxv.h>
#endif

namespace accel_ops {
namespace {

#if defined(__x86_64__)
constexpr int32_t kBase = 1;
#else
constexpr int32_t kBase = 0;
#endif

int32_t detect() {
#if ACCEL_X86_LEVELS
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4")) return 4;
  if (__builtin_cpu_supports("x86-64-v3")) return 3;
#elif ACCEL_SVE
  constexpr unsigned long kHasSve = 1ul << 22;  // HWCAP_SVE, which older kernel headers lack
  if (getauxval(AT_HWCAP) & kHasSve) return 5;
#endif
  return kBase;
}

// Null for a number that this library has no kernels for.
const Level* find(int32_t number) {
#if ACCEL_X86_LEVELS
  if (number == 4) return &v4::kLevel;
  if (number == 3) return &v3::kLevel;
#elif ACCEL_SVE
  if (number == 5) return &sve::kLevel;
#endif
  return number == kBase ? &base::kLevel : nullptr;
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
  const Level* const found = find(number);
  if (!found || number > g_best) return ACCEL_BAD_LEVEL;
  g_number = number;
  g_level = found;
  return ACCEL_OK;
}

int32_t accel_abi_version() {
  return ACCEL_ABI_VERSION;
}
