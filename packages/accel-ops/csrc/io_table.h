// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Jobs by their number.
#pragma once

#include <memory>

#include "io_job.h"

namespace accel_ops::io {

class Table {
 public:
  Table() = default;
  ~Table() {
    for (Job*& chain : chains_)
      while (chain) take(chain);
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  void insert(std::unique_ptr<Job> job) {
    Job*& chain = chain_of(job->id);
    job->chained = chain;
    chain = job.release();
  }

  // null: there is none of this number.
  Job* find(int64_t id) {
    Job* job = chain_of(id);
    while (job && job->id != id) job = job->chained;
    return job;
  }

  std::unique_ptr<Job> remove(int64_t id) {
    Job** place = &chain_of(id);
    while (*place && (*place)->id != id) place = &(*place)->chained;
    return take(*place);
  }

  bool all_ended() const {
    for (const Job* chain : chains_)
      for (const Job* job = chain; job; job = job->chained)
        if (!job->ended()) return false;
    return true;
  }

 private:
  static constexpr uint64_t kChains = 1024;  // numbers are given one after the other, and so divided evenly

  Job*& chain_of(int64_t id) { return chains_[static_cast<uint64_t>(id) % kChains]; }

  static std::unique_ptr<Job> take(Job*& place) {
    Job* const job = place;
    if (job) place = job->chained;
    return std::unique_ptr<Job>(job);
  }

  Job* chains_[kChains] = {};
};

} // namespace accel_ops::io
