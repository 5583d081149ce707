// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "io_staging.h"

#include <sys/mman.h>

namespace accel_ops::io {
namespace {

// Huge pages: a request of a block device has a limited number of segments, and 4 KiB pages fill it early.
constexpr int64_t kHuge = 2 << 20;

} // namespace

Staging::~Staging() {
  if (mapping_) munmap(mapping_, static_cast<size_t>(length_));
}

void Staging::allocate() {
  allocated_ = true;
  length_ = slots_ * size_ + kHuge;
  void* mapping =
      mmap(nullptr, static_cast<size_t>(length_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return;
  mapping_ = static_cast<char*>(mapping);
  begin_ = mapping_ + (kHuge - static_cast<int64_t>(reinterpret_cast<uintptr_t>(mapping) % kHuge)) % kHuge;
#if defined(__linux__)
  madvise(mapping_, static_cast<size_t>(length_), MADV_HUGEPAGE);
  // A child of fork() needs none of it, and copy-on-write must not move what the device writes to.
  madvise(mapping_, static_cast<size_t>(length_), MADV_DONTFORK);
#endif
  // The last slot is taken first: few blocks touch few pages.
  for (int slot = slots_; slot-- > 0;) free_.push(slot);
}

int Staging::take() {
  if (!allocated_) allocate();
  if (free_.empty()) return -1;
  return free_.pop();
}

} // namespace accel_ops::io
