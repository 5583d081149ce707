// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "overlap.h"

#include <algorithm>
#include <cstdlib>

namespace accel_ops {
namespace {

// Addresses of a tensor.
struct Range {
  uintptr_t begin, end;
  bool written;
};

bool begins_before(const Range& left, const Range& right) {
  return left.begin < right.begin;
}

// Appends the ranges of a list; returns the new count.
int64_t append(
    Range* ranges, int64_t count, const accel_tensor_lists& lists, void* const* list, int32_t type, bool written) {
  const uintptr_t width = type == ACCEL_F32 ? 4 : 2;
  for (int64_t i = 0; list && i < lists.tensors; ++i)
    if (lists.sizes[i]) {
      const auto begin = reinterpret_cast<uintptr_t>(list[i]);
      ranges[count++] = {begin, begin + width * static_cast<uintptr_t>(lists.sizes[i]), written};
    }
  return count;
}

} // namespace

int check_overlap(const accel_tensor_lists& lists) {
  constexpr int64_t kOnStack = 20;
  Range on_stack[kOnStack];
  const int64_t capacity = 5 * lists.tensors;
  Range* ranges = on_stack;
  if (capacity > kOnStack) ranges = static_cast<Range*>(std::malloc(static_cast<size_t>(capacity) * sizeof(Range)));
  if (!ranges) return ACCEL_NO_MEMORY;
  int64_t count = append(ranges, 0, lists, lists.params, lists.param_type, true);
  count = append(ranges, count, lists, lists.grads, lists.grad_type, false);
  count = append(ranges, count, lists, lists.first, lists.state_type, true);
  count = append(ranges, count, lists, lists.second, lists.state_type, true);
  count = append(ranges, count, lists, lists.copies, lists.copy_type, true);
  std::sort(ranges, ranges + count, begins_before);
  // Ranges that are only read, those of gradients, may overlap each other.
  int status = ACCEL_OK;
  uintptr_t written_end = 0, read_end = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Range& range = ranges[i];
    if (range.begin < written_end || (range.written && range.begin < read_end)) status = ACCEL_OVERLAP;
    uintptr_t& end = range.written ? written_end : read_end;
    if (end < range.end) end = range.end;
  }
  if (ranges != on_stack) std::free(ranges);
  return status;
}

} // namespace accel_ops
