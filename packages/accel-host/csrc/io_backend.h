// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// What carries out the system calls of blocks, for one thread.
#pragma once

#include <memory>
#include <vector>

#include "io_job.h"

namespace accel_host::io {

// The result of a block's system call: a count, or a negated errno.
struct Completion {
  Block* block;
  int64_t result;
};

class Backend {
 public:
  virtual ~Backend() = default;
  // Queues the next system call of a block.
  virtual void push(Block& block) = 0;
  // Starts what is queued and appends what has ended. wait: until something has, or `wake` is called. Returns 0, or an
  // errno after which the backend cannot be used.
  virtual int run(bool wait, std::vector<Completion>& ended) = 0;
  // Ends a `run` that waits; may be called from any thread.
  virtual void wake() {}
  // In a child of fork(): closes descriptors.
  virtual void abandon() {}
};

// null, with the reason in *error, where there is no io_uring.
std::unique_ptr<Backend> make_uring(int depth, int* error);
// Blocking system calls.
std::unique_ptr<Backend> make_blocking();
// Lets `rate` of 1000 system calls of another backend fail, or transfer less.
std::unique_ptr<Backend> make_faulty(std::unique_ptr<Backend> backend, int64_t seed, int rate);

} // namespace accel_host::io
