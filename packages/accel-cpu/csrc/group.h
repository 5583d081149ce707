// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// A rank's view of its group, and the collectives.
//
// The ranks go through the same phases: each writes into its own slot, arrives, waits for the others, and reads
// their slots. A rank has two slots and alternates between them. It may write into one again because since it was
// last read, every rank has arrived at a later phase, which it does only after it has finished reading.
#pragma once

#include <vector>

#include "segment.h"
#include "waiting.h"

namespace accel_shm {

struct Pieces;

class Group {
 public:
  Group(const Segment& segment, int32_t rank, const std::vector<int32_t>& pids, int32_t spin_us, int64_t timeout_ms);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const Result& run(const Request& request, const Buffers& buffers);
  // Ends the group for all ranks, also while another thread is in `run`, which then returns the same status. Returns
  // how it ended, in case it had: status | rank << 8.
  uint32_t end(int32_t status, int32_t rank);
  bool has(int32_t rank) const { return rank >= 0 && rank < ranks_; }

 private:
  // Each returns a status.
  int32_t dispatch(const Request& request, const Buffers& buffers);
  int32_t all_reduce_small(uint8_t* data, const Request& request);
  int32_t all_reduce(uint8_t* data, const Request& request);
  int32_t broadcast(uint8_t* data, const Request& request);
  int32_t all_gather(const uint8_t* input, uint8_t* output, int64_t bytes);
  int32_t reduce_scatter(const uint8_t* input, uint8_t* output, const Request& request);
  int32_t all_to_all(const Buffers& buffers);
  int32_t arrive_and_wait();
  int32_t wait_for_all();
  int32_t wait_for(int32_t rank);
  // After the first wait of a collective: whether all ranks asked for the same.
  int32_t compare_requests();
  // Ends the group, unless it has ended. theirs: what `rank` asked for, in a MISMATCH.
  int32_t fail(int32_t status, int32_t rank, const Request& theirs = {});

  // Increases this rank's phase and wakes the ranks that wait for it.
  void arrive();
  uint8_t* slot(int32_t rank) const { return segment_.slot(rank, turn_); }
  // What a rank asks for in the current collective.
  Request& request_of(int32_t rank) const { return segment_.progress(rank).requests[requests_ & 1u]; }
  void copy(void* to, const void* from, int64_t bytes) const;
  // Reduces `bytes` of each rank's `sources_` into `output`, and into `also` unless it is null.
  void reduce_sources(const Request& request, void* output, void* also, int64_t bytes) const;

  // The steps of a large all_reduce.
  bool receives(const Request& request) const;
  int64_t half_slot() const;
  uint8_t* piece_slot(int32_t rank, int64_t index) const;
  void copy_in(const uint8_t* data, const Pieces& pieces, int64_t index) const;
  void reduce_piece(uint8_t* data, const Pieces& pieces, int64_t index, const Request& request);
  void copy_out(uint8_t* data, const Pieces& pieces, int64_t index) const;

  Segment segment_;
  const int32_t rank_, ranks_, spin_us_;
  const int64_t timeout_ms_;
  std::vector<Peer> peers_;
  std::vector<const uint8_t*> sources_;  // of a reduction, by rank
  uint32_t phase_ = 0;                   // at which this rank has arrived
  uint32_t turn_ = 0;                    // which of the two slots
  uint32_t requests_ = 0;
  bool compared_ = false;
  int64_t deadline_ms_ = 0;
  int32_t threads_ = 1;
  Result result_{};
};

} // namespace accel_shm
