// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "order/span.h"

#include <algorithm>

namespace accel_sim {

namespace {

constexpr int64_t kMostPieces = 4 << 20;  // beyond, two spans that interleave are taken to meet

} // namespace

Span::Span(const at::Tensor& tensor, int64_t low) : low_(low), high_(low), run_(0) {
  if (!tensor.numel()) return;
  run_ = static_cast<int64_t>(tensor.itemsize());
  std::vector<std::pair<int64_t, int64_t>> dimensions;  // stride in bytes, size
  for (int64_t i = 0; i < tensor.dim(); i++) {
    if (tensor.size(i) > 1 && tensor.stride(i)) dimensions.emplace_back(tensor.stride(i) * run_, tensor.size(i));
  }
  std::sort(dimensions.begin(), dimensions.end());
  for (const auto& [stride, size] : dimensions) {
    high_ += (size - 1) * stride;
    if (steps_.empty() && stride <= run_) {
      run_ += (size - 1) * stride;  // rows that touch or, in an overlapping view, overlap
    } else {
      steps_.emplace_back(size, stride);
    }
  }
  high_ += static_cast<int64_t>(tensor.itemsize());
}

std::vector<std::pair<int64_t, int64_t>> Span::pieces() const {
  std::vector<std::pair<int64_t, int64_t>> found{{low_, low_ + run_}};
  for (const auto& [count, stride] : steps_) {
    const auto before = found.size();
    for (int64_t i = 1; i < count; i++) {
      for (size_t k = 0; k < before; k++) found.emplace_back(found[k].first + i * stride, found[k].second + i * stride);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool Span::meets(const Span& other) const {
  if (low_ >= other.high_ || other.low_ >= high_) return false;
  if (in_one_piece() && other.in_one_piece()) return true;
  for (const auto* span : {this, &other}) {
    int64_t count = 1;
    for (const auto& step : span->steps_) count *= step.first;
    if (count > kMostPieces) return true;
  }
  const auto mine = pieces(), theirs = other.pieces();
  for (size_t i = 0, k = 0; i < mine.size() && k < theirs.size();) {
    if (mine[i].first < theirs[k].second && theirs[k].first < mine[i].second) return true;
    mine[i].second <= theirs[k].second ? i++ : k++;
  }
  return false;
}

bool Span::covers(const Span& other) const {
  if (in_one_piece()) return low_ <= other.low_ && other.high_ <= high_;
  return low_ == other.low_ && run_ == other.run_ && steps_ == other.steps_;
}

} // namespace accel_sim
