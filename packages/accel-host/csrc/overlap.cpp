// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "overlap.h"

#include <algorithm>
#include <cstdlib>

namespace accel_host {
namespace {

struct Range {
  uintptr_t begin, end;
  bool written;
};

bool begins_before(const Range& one, const Range& other) {
  return one.begin < other.begin;
}

int64_t add(Range* ranges, int64_t count, const accel_tensor_lists& lists, void* const* list, int32_t type, bool written) {
  const uintptr_t width = type == ACCEL_F32 ? 4 : 2;
  for (int64_t i = 0; list && i < lists.tensors; ++i)
    if (lists.sizes[i]) {
      const auto begin = reinterpret_cast<uintptr_t>(list[i]);
      ranges[count++] = {begin, begin + width * static_cast<uintptr_t>(lists.sizes[i]), written};
    }
  return count;
}

} // namespace

int overlap(const accel_tensor_lists& lists) {
  constexpr int64_t kFew = 20;
  Range few[kFew];
  const int64_t most = 5 * lists.tensors;
  Range* ranges = few;
  if (most > kFew) ranges = static_cast<Range*>(std::malloc(static_cast<size_t>(most) * sizeof(Range)));
  if (!ranges) return ACCEL_NO_MEMORY;
  int64_t count = add(ranges, 0, lists, lists.params, lists.param_type, true);
  count = add(ranges, count, lists, lists.grads, lists.grad_type, false);
  count = add(ranges, count, lists, lists.first, lists.state_type, true);
  count = add(ranges, count, lists, lists.second, lists.state_type, true);
  count = add(ranges, count, lists, lists.copies, lists.copy_type, true);
  std::sort(ranges, ranges + count, begins_before);
  // Gradients may share memory with each other.
  int status = ACCEL_OK;
  uintptr_t written_to = 0, read_to = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Range& range = ranges[i];
    if (range.begin < written_to || (range.written && range.begin < read_to)) status = ACCEL_OVERLAP;
    uintptr_t& end = range.written ? written_to : read_to;
    if (end < range.end) end = range.end;
  }
  if (ranges != few) std::free(ranges);
  return status;
}

} // namespace accel_host
