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
  accel_shm_request requests[2];   // of the current collective and the one before
};

struct Header {
  uint64_t magic;
  uint32_t version;
  int32_t ranks;
  int64_t bytes;       // of the segment
  int64_t slot_bytes;  // of each of the two slots of each rank
  uint8_t nonce[ACCEL_SHM_NONCE];
  // How the group ended: status | rank << 8, 0 while it works.
  alignas(kLine) std::atomic<uint32_t> ended;
};

static_assert(std::atomic<uint32_t>::is_always_lock_free, "processes share these");
static_assert(sizeof(std::atomic<uint32_t>) == 4, "the futex system call waits for 32 bits");

// A segment in this process's memory.
class Segment {
 public:
  // Both return 0 or an errno.
  static int create(int32_t ranks, int64_t bytes, const uint8_t* nonce, int* fd);
  int map(int fd, int32_t ranks, const uint8_t* nonce);
  void unmap();

  Header& header() const { return *reinterpret_cast<Header*>(base_); }
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
