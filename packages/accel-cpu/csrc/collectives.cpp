// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The collectives, piece by piece. See group.h for why a slot may be written again.
#include <algorithm>
#include <cstring>

#include "group.h"
#include "reduce.h"

namespace accel_shm {
namespace {

// Up to this size for two ranks every rank reduces everything: that reads more, and waits once less.
constexpr int64_t kSmallBytes = 64 << 10;
// Larger pieces would not stay in a second-level cache between their copies.
constexpr int64_t kPieceBytes = 512 << 10;
constexpr int64_t kAlign = 64;

int64_t divided(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

} // namespace

// How a tensor is cut: one piece of at most `whole` bytes, or an even number of at most `most`; on cache lines.
struct Pieces {
  Pieces(int64_t elements, int64_t size, int64_t most, int64_t whole)
      : total(elements * size), count(total <= whole ? 1 : divided(divided(total, most), 2) * 2),
        length(divided(divided(total, count), kAlign) * kAlign) {}

  int64_t begin(int64_t index) const { return std::min(total, index * length); }
  int64_t bytes(int64_t index) const { return begin(index + 1) - begin(index); }
  // Where the part of a piece begins that `rank` reduces; the same in all pieces, as their places are used again.
  int64_t part(int64_t index, int32_t rank, int32_t ranks) const {
    return std::min(bytes(index), length / kAlign * rank / ranks * kAlign);
  }

  const int64_t total, count, length;
};

// Whether this rank gets the result of a reduction.
bool Group::receives(const Request& request) const {
  return request.kind == ACCEL_SHM_ALL_REDUCE || request.root == rank_;
}

int64_t Group::half_slot() const {
  return segment_.slot_bytes() / 2 / kAlign * kAlign;
}

int32_t Group::all_reduce_small(uint8_t* data, const Request& request) {
  std::memcpy(slot(rank_), data, static_cast<size_t>(request.bytes));
  if (const int32_t status = arrive_and_wait()) return status;
  if (receives(request)) {
    for (int32_t rank = 0; rank < ranks_; ++rank) sources_[static_cast<size_t>(rank)] = slot(rank);
    reduce_sources(request, data, nullptr, request.bytes);
  }
  ++turn_;
  return ACCEL_SHM_OK;
}

// Each rank reduces its part of a piece, and the others copy the result while the next piece is being reduced. A rank
// arrives once a piece, before it copies: a slow rank then delays the others by its work, not by its copies.
//
// A piece lies in half a slot, so that four are in use. When a rank writes one again it has seen all ranks arrive two
// pieces later. The last two, which others may still read, are in one slot: therefore their number is even, or one.
// A REDUCE takes the same steps. Only its root copies the result; the tensors of the other ranks stay as they are.
int32_t Group::all_reduce(uint8_t* data, const Request& request) {
  const int64_t size = element_size(request.type);
  const int64_t small = std::min(kSmallBytes * 2 / ranks_, segment_.slot_bytes());
  if (request.bytes <= small) return all_reduce_small(data, request);
  // Ranks that share CPUs wait for each other's time slices: the fewer pieces the better.
  const int64_t most = spin_us_ > 0 ? std::min(half_slot(), kPieceBytes) : half_slot();
  const Pieces pieces(request.bytes / size, size, most, half_slot());
  copy_in(data, pieces, 0);
  arrive();
  for (int64_t index = 0; index <= pieces.count; ++index) {
    if (const int32_t status = wait_for_all()) return status;
    if (index < pieces.count) {
      reduce_piece(data, pieces, index, request);
      if (index + 1 < pieces.count) copy_in(data, pieces, index + 1);
      arrive();
    }
    if (index > 0 && receives(request)) copy_out(data, pieces, index - 1);
  }
  turn_ += static_cast<uint32_t>(divided(pieces.count, 2));
  return ACCEL_SHM_OK;
}

uint8_t* Group::piece_slot(int32_t rank, int64_t index) const {
  return segment_.slot(rank, turn_ + static_cast<uint32_t>(index / 2)) + index % 2 * half_slot();
}

// What the others reduce.
void Group::copy_in(const uint8_t* data, const Pieces& pieces, int64_t index) const {
  const uint8_t* const here = data + pieces.begin(index);
  uint8_t* const to = piece_slot(rank_, index);
  const int64_t own = pieces.part(index, rank_, ranks_), after = pieces.part(index, rank_ + 1, ranks_);
  copy(to, here, own);
  copy(to + after, here + after, pieces.bytes(index) - after);
}

void Group::reduce_piece(uint8_t* data, const Pieces& pieces, int64_t index, const Request& request) {
  const int64_t own = pieces.part(index, rank_, ranks_), after = pieces.part(index, rank_ + 1, ranks_);
  uint8_t* const here = data + pieces.begin(index) + own;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    sources_[static_cast<size_t>(rank)] = rank == rank_ ? here : piece_slot(rank, index) + own;
  }
  uint8_t* const shared = piece_slot(rank_, index) + own;
  reduce_sources(request, receives(request) ? here : shared, request.kind == ACCEL_SHM_REDUCE ? nullptr : shared,
                 after - own);
}

void Group::copy_out(uint8_t* data, const Pieces& pieces, int64_t index) const {
  uint8_t* const here = data + pieces.begin(index);
  for (int32_t i = 1; i < ranks_; ++i) {
    const int32_t rank = (rank_ + i) % ranks_;
    const int64_t from = pieces.part(index, rank, ranks_);
    copy(here + from, piece_slot(rank, index) + from, pieces.part(index, rank + 1, ranks_) - from);
  }
}

int32_t Group::broadcast(uint8_t* data, const Request& request) {
  int64_t begin = 0;
  do {  // one phase even for nothing, to compare the requests
    const int64_t bytes = std::min(segment_.slot_bytes(), request.bytes - begin);
    if (rank_ == request.root) copy(slot(rank_), data + begin, bytes);
    if (const int32_t status = arrive_and_wait()) return status;
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
    arrive();
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

int32_t Group::reduce_scatter(const uint8_t* input, uint8_t* output, const Request& request) {
  const int64_t piece = segment_.slot_bytes() / ranks_ / kAlign * kAlign;
  int64_t begin = 0;
  do {
    const int64_t bytes = std::min(piece, request.bytes - begin);
    for (int32_t rank = 0; rank < ranks_; ++rank) {
      if (rank != rank_) copy(slot(rank_) + rank * piece, input + rank * request.bytes + begin, bytes);
    }
    if (const int32_t status = arrive_and_wait()) return status;
    for (int32_t rank = 0; rank < ranks_; ++rank) {
      sources_[static_cast<size_t>(rank)] =
          rank == rank_ ? input + rank_ * request.bytes + begin : slot(rank) + rank_ * piece;
    }
    reduce_sources(request, output + begin, nullptr, bytes);
    ++turn_;
    begin += bytes;
  } while (begin < request.bytes);
  return ACCEL_SHM_OK;
}

// First the ranks tell each other how much they send and expect; then they go on until the largest part is through.
int32_t Group::all_to_all(const Buffers& buffers) {
  const size_t table = sizeof(int64_t) * static_cast<size_t>(ranks_);
  const int64_t piece = segment_.slot_bytes() / ranks_ / kAlign * kAlign;
  std::memcpy(slot(rank_), buffers.sends, table);
  std::memcpy(slot(rank_) + table, buffers.receives, table);
  if (const int32_t status = arrive_and_wait()) return status;
  int64_t largest = 0;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const auto* sends = reinterpret_cast<const int64_t*>(slot(rank));
    for (int32_t peer = 0; peer < ranks_; ++peer) {
      const int64_t expected = reinterpret_cast<const int64_t*>(slot(peer) + table)[rank];
      // All ranks see the same tables, and so name the same pair.
      if (sends[peer] != expected) {
        return fail(ACCEL_SHM_MISMATCH, rank, {ACCEL_SHM_ALL_TO_ALL, 0, 0, peer, sends[peer], expected});
      }
      largest = std::max(largest, expected);
    }
  }
  ++turn_;
  const auto part = [&](int64_t bytes, int64_t begin) { return std::clamp<int64_t>(bytes - begin, 0, piece); };
  for (int64_t begin = 0; begin < largest; begin += piece) {
    const uint8_t* from = buffers.input + begin;
    for (int32_t rank = 0; rank < ranks_; from += buffers.sends[rank++]) {
      copy(slot(rank_) + rank * piece, from, part(buffers.sends[rank], begin));
    }
    if (const int32_t status = arrive_and_wait()) return status;
    uint8_t* to = buffers.output + begin;
    for (int32_t rank = 0; rank < ranks_; to += buffers.receives[rank++]) {
      copy(to, slot(rank) + rank_ * piece, part(buffers.receives[rank], begin));
    }
    ++turn_;
  }
  return ACCEL_SHM_OK;
}

} // namespace accel_shm
