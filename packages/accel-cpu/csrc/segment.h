// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The layout of the memory that the ranks of a group share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "accel_shm.h"

namespace accel_shm {

constexpr int64_t kPage = 4096;
constexpr size_t kLine = 128;  // two cache lines, which are fetched together

// A rank's progress. Only its rank writes `phase`, `left` and `requests`.
struct alignas(kLine) Progress {
  std::atomic<uint32_t> phase;     // increased when the rank arrives at the next point of a collective
  std::atomic<uint32_t> sleepers;  // ranks that sleep until `phase` changes
  std::atomic<uint32_t> left;      // whether the rank will not arrive any more
  Request requests[2];             // of the current collective and the one before
};

static_assert(std::atomic<uint32_t>::is_always_lock_free, "processes share these");
static_assert(sizeof(std::atomic<uint32_t>) == 4, "the futex system call waits for 32 bits");

// A segment in this process's memory: a page that begins with the mark of its creator (shm/segment.py) and has how the
// group ended, then the ranks' progress and their slots. The memory of a new one is zero.
class Segment {
 public:
  // Returns 0 or an errno.
  int map(int fd, int64_t bytes, int32_t ranks);
  void unmap();

  // status | rank << 8, 0 while the group works.
  std::atomic<uint32_t>& ended() const { return *reinterpret_cast<std::atomic<uint32_t>*>(base_ + kPage / 2); }
  Progress& progress(int32_t rank) const { return reinterpret_cast<Progress*>(base_ + kPage)[rank]; }
  uint8_t* slot(int32_t rank, uint32_t parity) const {
    return data_ + (2 * static_cast<int64_t>(rank) + (parity & 1u)) * slot_bytes_;
  }
  int64_t slot_bytes() const { return slot_bytes_; }

 private:
  uint8_t* base_ = nullptr;
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0, slot_bytes_ = 0;
};

} // namespace accel_shm
