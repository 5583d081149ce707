// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "segment.h"

#include <sys/mman.h>

#include <cerrno>

namespace accel_shm {

int Segment::map(int fd, int64_t bytes, int32_t ranks) {
  const int64_t offset = kPage + (static_cast<int64_t>(sizeof(Progress)) * ranks + kPage - 1) / kPage * kPage;
  slot_bytes_ = (bytes - offset) / (2 * ranks) / kPage * kPage;
  if (slot_bytes_ < 64 * ranks) return EINVAL;  // a slot has a cache line for each rank
  void* const memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return errno;
  base_ = static_cast<uint8_t*>(memory);
  data_ = base_ + offset;
  bytes_ = bytes;
  return 0;
}

void Segment::unmap() {
  munmap(base_, static_cast<size_t>(bytes_));
}

} // namespace accel_shm
