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
  Group(const Segment& segment, int32_t rank, int32_t ranks, const int32_t* pids, int32_t spin_us);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int32_t run(const accel_shm_request& request, const accel_shm_buffers& buffers, accel_shm_result* result);
  // Ends the group for all ranks, also while another thread is in `run`, which then returns the same status.
  void end(int32_t status, int32_t rank);

 private:
  // Each returns a status.
  int32_t barrier();
  int32_t all_reduce_small(uint8_t* data, const accel_shm_request& request);
  int32_t all_reduce(uint8_t* data, const accel_shm_request& request);
  int32_t broadcast(uint8_t* data, const accel_shm_request& request);
  int32_t all_gather(const uint8_t* input, uint8_t* output, int64_t bytes);
  int32_t reduce_scatter(const uint8_t* input, uint8_t* output, const accel_shm_request& request);
  int32_t all_to_all(const accel_shm_buffers& buffers);
  int32_t parts_differ(int32_t sender, int32_t receiver, int64_t sent, int64_t expected);

  int32_t dispatch(const accel_shm_request& request, const accel_shm_buffers& buffers);
  bool valid(const accel_shm_request& request, const accel_shm_buffers& buffers) const;
  void arrive_next() { arrive(segment_.progress(rank_), ++phase_); }
  int32_t wait_for_all();
  // After the first wait of a collective: whether all ranks asked for the same.
  int32_t compare_requests();
  uint8_t* slot(int32_t rank) const { return segment_.slot(rank, turn_); }
  void copy(void* to, const void* from, int64_t bytes) const;
  // Into `output`, and into `also` unless it is null.
  void reduce_parts(
      int32_t type, int32_t operation, const std::vector<const void*>& parts, void* output, void* also,
      int64_t elements) const;

  // The steps of a large all_reduce.
  int64_t small_bytes() const;
  bool receives(const accel_shm_request& request) const;
  int64_t half_slot() const;
  int64_t piece_bytes() const;
  uint8_t* piece_slot(int32_t rank, int64_t index) const;
  void copy_in(const uint8_t* data, const Pieces& pieces, int64_t index) const;
  void reduce_piece(uint8_t* data, const Pieces& pieces, int64_t index, const accel_shm_request& request) const;
  void copy_out(uint8_t* data, const Pieces& pieces, int64_t index) const;

  Segment segment_;
  const int32_t rank_, ranks_, spin_us_;
  std::vector<Peer> peers_;
  uint32_t phase_ = 0;  // at which this rank has arrived
  uint32_t turn_ = 0;   // which of the two slots
  uint32_t requests_ = 0;
  bool compared_ = false;
  Deadline deadline_{};
  int32_t threads_ = 1;
  int32_t blamed_ = -1;
  accel_shm_request parts_{};  // of an ALL_TO_ALL whose parts differ
};

} // namespace accel_shm
