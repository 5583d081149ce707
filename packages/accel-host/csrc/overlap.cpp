// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "overlap.h"

#include <cstdlib>

namespace accel_host {
namespace {

struct Range {
  uintptr_t begin, end;
};

int by_begin(const void* one, const void* other) {
  const auto a = static_cast<const Range*>(one)->begin, b = static_cast<const Range*>(other)->begin;
  return a < b ? -1 : a > b;
}

int64_t add(Range* ranges, int64_t count, const accel_lists& lists, void* const* list, int32_t type) {
  const uintptr_t width = type == ACCEL_F32 ? 4 : 2;
  for (int64_t i = 0; list && i < lists.tensors; ++i)
    if (lists.sizes[i]) {
      const auto begin = reinterpret_cast<uintptr_t>(list[i]);
      ranges[count++] = {begin, begin + width * static_cast<uintptr_t>(lists.sizes[i])};
    }
  return count;
}

} // namespace

int overlap(const accel_lists& lists) {
  constexpr int64_t kFew = 16;
  Range few[kFew];
  const int64_t most = 4 * lists.tensors;
  Range* ranges = few;
  if (most > kFew) ranges = static_cast<Range*>(std::malloc(static_cast<size_t>(most) * sizeof(Range)));
  if (!ranges) return ACCEL_NO_MEMORY;
  int64_t count = add(ranges, 0, lists, lists.params, lists.param_type);
  count = add(ranges, count, lists, lists.first, lists.state_type);
  count = add(ranges, count, lists, lists.second, lists.state_type);
  count = add(ranges, count, lists, lists.copies, lists.copy_type);
  std::qsort(ranges, static_cast<size_t>(count), sizeof(Range), by_begin);
  int status = ACCEL_OK;
  for (int64_t i = 1; i < count; ++i)
    if (ranges[i].begin < ranges[i - 1].end) status = ACCEL_OVERLAP;
  if (ranges != few) std::free(ranges);
  return status;
}

} // namespace accel_host
