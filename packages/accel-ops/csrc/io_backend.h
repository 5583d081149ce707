// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// What carries out the system calls of blocks, for one thread.
#pragma once

#include <memory>

#include "io_job.h"
#include "io_memory.h"

namespace accel_ops::io {

// The result of a block's system call: a count, or a negated errno.
struct Completion {
  Block* block;
  int64_t result;
};

using Completions = Array<Completion>;

// Functions have bodies: a pure virtual one refers to libstdc++.
class Backend : public Allocated {
 public:
  virtual ~Backend() = default;
  // Queues the next system call of a block.
  virtual void push(Block&) {}
  // Starts what is queued and appends what has ended. wait: until something has, or `wake` is called. Returns 0, or an
  // errno after which the backend cannot be used.
  virtual int run(bool wait, Completions& ended);
  // Ends a `run` that waits; may be called from any thread.
  virtual void wake() {}
  // In a child of fork(): closes descriptors.
  virtual void abandon() {}
};

// Each for up to `depth` blocks in flight; null where there is no memory.
// make_uring: null, with the reason in *error, where there is no io_uring.
std::unique_ptr<Backend> make_uring(int depth, int* error);
// Blocking system calls.
std::unique_ptr<Backend> make_blocking(int depth);
// Lets `rate` of 1000 system calls of another backend fail, or transfer less.
std::unique_ptr<Backend> make_faulty(std::unique_ptr<Backend> backend, int depth, int64_t seed, int rate);

} // namespace accel_ops::io
