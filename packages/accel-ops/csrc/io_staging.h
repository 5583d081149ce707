// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Aligned memory of a worker for blocks whose own memory O_DIRECT does not take.
#pragma once

#include <cstdint>

#include "io_memory.h"

namespace accel_ops::io {

class Staging {
 public:
  // slots of `size` bytes each; no memory is mapped before the first `take`.
  Staging(int slots, int64_t size) : slots_(slots), size_(size) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // False where there is no memory.
  bool reserve() { return free_.reserve(static_cast<size_t>(slots_)); }
  bool full() const { return mapping_ && free_.empty(); }
  int slots() const { return slots_; }
  int taken() const { return mapping_ ? slots_ - static_cast<int>(free_.size()) : 0; }
  // A free slot, or -1 where there is no memory.
  int take();
  char* memory(int slot) const { return begin_ + static_cast<int64_t>(slot) * size_; }
  void release(int slot) { free_.push(slot); }

 private:
  void allocate();

  int slots_;
  int64_t size_;
  bool allocated_ = false;
  char *mapping_ = nullptr, *begin_ = nullptr;
  int64_t length_ = 0;
  Array<int> free_;
};

} // namespace accel_ops::io
