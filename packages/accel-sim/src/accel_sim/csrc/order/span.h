// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The bytes of a storage that a tensor covers, exactly: two halves of a matrix do not overlap.
#pragma once

#include "runtime/runtime.h"

namespace accel_sim {

class Span {
 public:
  Span(int64_t low, int64_t high) : low_(low), high_(high), run_(high - low) {}
  // The bytes of a tensor; low: where its first element lies.
  Span(const at::Tensor& tensor, int64_t low);

  bool meets(const Span& other) const;
  bool covers(const Span& other) const;

 private:
  bool in_one_piece() const { return steps_.empty(); }
  std::vector<std::pair<int64_t, int64_t>> pieces() const;

  int64_t low_, high_;
  int64_t run_;                                     // bytes in a row
  std::vector<std::pair<int64_t, int64_t>> steps_;  // how often and how far apart the rows repeat, inner first
};

} // namespace accel_sim
