// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The collectives, piece by piece. See group.h for why a slot may be written again.
#include <algorithm>
#include <cstring>

#include "group.h"
#include "reduce.h"

namespace accel_shm {
namespace {

// Up to this size every rank reduces everything: reading the peers' data once more costs less than a second phase.
constexpr int64_t kSmallBytes = 32 << 10;
constexpr int64_t kAlign = 64;

// Where the part of rank `rank` begins, of `elements` that are divided among `ranks` on cache lines.
int64_t part_begin(int64_t elements, int64_t size, int32_t rank, int32_t ranks) {
  const int64_t unit = std::max<int64_t>(1, kAlign / size);
  const int64_t units = (elements + unit - 1) / unit;
  return std::min(elements, units * rank / ranks * unit);
}

} // namespace

int32_t Group::barrier() {
  arrive_next();
  return wait_for_all();
}

int32_t Group::all_reduce_small(uint8_t* data, const accel_shm_request& request) {
  std::memcpy(slot(rank_), data, static_cast<size_t>(request.bytes));
  arrive_next();
  if (const int32_t status = wait_for_all()) return status;
  std::vector<const void*> parts(static_cast<size_t>(ranks_));
  for (int32_t rank = 0; rank < ranks_; ++rank) parts[static_cast<size_t>(rank)] = slot(rank);
  reduce(request.type, request.operation, parts.data(), ranks_, data, request.bytes / element_size(request.type));
  ++turn_;
  return ACCEL_SHM_OK;
}

// Each rank reduces its part of a piece and the others copy the result. While they wait, the next piece is copied in.
int32_t Group::all_reduce(uint8_t* data, const accel_shm_request& request) {
  const int64_t size = element_size(request.type), elements = request.bytes / size;
  if (request.bytes <= std::min(kSmallBytes, segment_.slot_bytes())) return all_reduce_small(data, request);
  const int64_t piece = segment_.slot_bytes() / kAlign * kAlign / size;
  std::vector<const void*> parts(static_cast<size_t>(ranks_));
  const auto length = [&](int64_t begin) { return std::min(piece, elements - begin); };
  const auto copy_in = [&](int64_t begin, uint32_t turn) {
    const int64_t own = part_begin(length(begin), size, rank_, ranks_) * size;
    const int64_t after = part_begin(length(begin), size, rank_ + 1, ranks_) * size;
    uint8_t* to = segment_.slot(rank_, turn);
    copy(to, data + begin * size, own);
    copy(to + after, data + begin * size + after, length(begin) * size - after);
  };
  copy_in(0, turn_);
  for (int64_t begin = 0; begin < elements; begin += piece) {
    uint8_t* const here = data + begin * size;
    arrive_next();
    if (const int32_t status = wait_for_all()) return status;
    const int64_t own = part_begin(length(begin), size, rank_, ranks_);
    const int64_t after = part_begin(length(begin), size, rank_ + 1, ranks_);
    for (int32_t rank = 0; rank < ranks_; ++rank) {
      parts[static_cast<size_t>(rank)] = (rank == rank_ ? here : slot(rank)) + own * size;
    }
    reduce_parts(request.type, request.operation, parts, slot(rank_) + own * size, after - own);
    arrive_next();
    copy(here + own * size, slot(rank_) + own * size, (after - own) * size);
    if (begin + piece < elements) copy_in(begin + piece, turn_ + 1);
    if (const int32_t status = wait_for_all()) return status;
    for (int32_t i = 1; i < ranks_; ++i) {
      const int32_t rank = (rank_ + i) % ranks_;
      const int64_t from = part_begin(length(begin), size, rank, ranks_) * size;
      const int64_t to = part_begin(length(begin), size, rank + 1, ranks_) * size;
      copy(here + from, slot(rank) + from, to - from);
    }
    ++turn_;
  }
  return ACCEL_SHM_OK;
}

int32_t Group::broadcast(uint8_t* data, const accel_shm_request& request) {
  int64_t begin = 0;
  do {  // one phase even for nothing, to compare the requests
    const int64_t bytes = std::min(segment_.slot_bytes(), request.bytes - begin);
    if (rank_ == request.root) copy(slot(rank_), data + begin, bytes);
    arrive_next();
    if (const int32_t status = wait_for_all()) return status;
    if (rank_ != request.root) copy(data + begin, slot(request.root), bytes);
    ++turn_;
    begin += bytes;
  } while (begin < request.bytes);
  return ACCEL_SHM_OK;
}

int32_t Group::all_gather(const uint8_t* input, uint8_t* output, int64_t total) {
  int64_t begin = 0;
  do {
    const int64_t bytes = std::min(segment_.slot_bytes(), total - begin);
    copy(slot(rank_), input + begin, bytes);
    arrive_next();
    if (input + begin != output + rank_ * total + begin) copy(output + rank_ * total + begin, input + begin, bytes);
    if (const int32_t status = wait_for_all()) return status;
    for (int32_t i = 1; i < ranks_; ++i) {
      const int32_t rank = (rank_ + i) % ranks_;
      copy(output + rank * total + begin, slot(rank), bytes);
    }
    ++turn_;
    begin += bytes;
  } while (begin < total);
  return ACCEL_SHM_OK;
}

int32_t Group::reduce_scatter(const uint8_t* input, uint8_t* output, const accel_shm_request& request) {
  const int64_t size = element_size(request.type);
  const int64_t piece = segment_.slot_bytes() / ranks_ / kAlign * kAlign;
  std::vector<const void*> parts(static_cast<size_t>(ranks_));
  int64_t begin = 0;
  do {
    const int64_t bytes = std::min(piece, request.bytes - begin);
    for (int32_t rank = 0; rank < ranks_; ++rank) {
      if (rank != rank_) copy(slot(rank_) + rank * piece, input + rank * request.bytes + begin, bytes);
    }
    arrive_next();
    if (const int32_t status = wait_for_all()) return status;
    for (int32_t rank = 0; rank < ranks_; ++rank) {
      parts[static_cast<size_t>(rank)] =
          rank == rank_ ? input + rank_ * request.bytes + begin : slot(rank) + rank_ * piece;
    }
    reduce_parts(request.type, request.operation, parts, output + begin, bytes / size);
    ++turn_;
    begin += bytes;
  } while (begin < request.bytes);
  return ACCEL_SHM_OK;
}

// First the ranks tell each other how much they send; then they go on until the largest part is through.
int32_t Group::all_to_all(const accel_shm_buffers& buffers) {
  const int64_t table = static_cast<int64_t>(sizeof(int64_t)) * ranks_;
  const int64_t piece = segment_.slot_bytes() / ranks_ / kAlign * kAlign;
  std::memcpy(slot(rank_), buffers.sends, static_cast<size_t>(table));
  arrive_next();
  if (const int32_t status = wait_for_all()) return status;
  int64_t largest = 0;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const auto* sends = reinterpret_cast<const int64_t*>(slot(rank));
    if (sends[rank_] != buffers.receives[rank]) {
      return end_group(segment_, ACCEL_SHM_MISMATCH, rank, &blamed_);
    }
    largest = std::max(largest, *std::max_element(sends, sends + ranks_));
  }
  ++turn_;
  const auto* input = static_cast<const uint8_t*>(buffers.input);
  auto* output = static_cast<uint8_t*>(buffers.output);
  const auto part = [&](int64_t bytes, int64_t begin) { return std::clamp<int64_t>(bytes - begin, 0, piece); };
  for (int64_t begin = 0; begin < largest; begin += piece) {
    const uint8_t* from = input + begin;
    for (int32_t rank = 0; rank < ranks_; from += buffers.sends[rank++]) {
      copy(slot(rank_) + rank * piece, from, part(buffers.sends[rank], begin));
    }
    arrive_next();
    if (const int32_t status = wait_for_all()) return status;
    uint8_t* to = output + begin;
    for (int32_t rank = 0; rank < ranks_; to += buffers.receives[rank++]) {
      copy(to, slot(rank) + rank_ * piece, part(buffers.receives[rank], begin));
    }
    ++turn_;
  }
  return ACCEL_SHM_OK;
}

} // namespace accel_shm
