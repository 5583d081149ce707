// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Ranks wait for each other: busily at first, then asleep, never without end.
#pragma once

#include <cstdint>

namespace accel_shm {

// A peer's process, seen from here.
class Peer {
 public:
  Peer(int32_t pid);
  bool has_ended() const;

 private:
  int32_t pid_;
  uint64_t started_;  // a process that has the number later began at another time
};

int64_t now_ms();

// Whether a signal handler raised an exception, which is then set, or the interpreter waits for this thread to end. In
// python.cpp.
bool gives_up();

} // namespace accel_shm
