// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Ranks wait for each other: busily at first, then asleep, never without end.
#pragma once

#include <cstdint>
#include <vector>

#include "segment.h"

namespace accel_shm {

// A peer's process, seen from here.
class Peer {
 public:
  Peer(int32_t pid);
  // ACCEL_SHM_OK, _DEAD, or _STOPPED after some seconds in which it was stopped at every look.
  int32_t state(int64_t now_ms);

 private:
  int32_t pid_;
  uint64_t started_;         // a process that has the number later began at another time
  int64_t stopped_since_ = -1;
};

// When a wait ends without the peer.
class Deadline {
 public:
  Deadline() = default;
  // Releases the interpreter lock until `finish`.
  void begin(int64_t timeout_ms);
  void finish();
  bool passed(int64_t now) const { return now > at_ms_; }
  // Whether a signal handler raised an exception, which is then set, or the interpreter waits for this thread to end.
  bool cancelled();

 private:
  int64_t at_ms_ = 0;
  void* thread_ = nullptr;
};

int64_t now_ms();

// The interpreter, in python.cpp.
void* release_interpreter();
void take_interpreter(void* thread);
bool gives_up();

// Increases a rank's phase and wakes the ranks that wait for it.
void arrive(Progress& progress, uint32_t phase);

// Waits until `rank` has arrived at `phase`. Returns a status; `blamed` is whom it is about. A status that is not OK is
// entered in the segment's header, so that all ranks end in the same way.
int32_t wait_for(
    const Segment& segment, int32_t self, int32_t rank, uint32_t phase, Peer& peer, int32_t spin_us,
    Deadline& deadline, int32_t* blamed);

// Enters how the group ended, unless it has ended; returns how it did, and whom that is about.
int32_t end_group(const Segment& segment, int32_t status, int32_t rank, int32_t* blamed);

} // namespace accel_shm
