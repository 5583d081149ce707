// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// A request as the engine handles it, and the blocks into which it is divided.
#pragma once

#include <atomic>
#include <cstdint>

#include "accel_io.h"
#include "io_memory.h"

namespace accel_ops::io {

// Retries of one block that transferred nothing (EINTR, EAGAIN), after which the error is reported.
constexpr int kRetries = 10000;

struct Job : Allocated {
  accel_io_request request{};
  int64_t id = 0;
  int64_t next = 0;          // file offset of the first byte of which no block has been made
  int64_t error_offset = 0;
  int32_t error = 0;
  int32_t blocks = 0;        // in flight
  Job* following = nullptr;  // in the queue
  Job* chained = nullptr;    // in the table
  bool queued = false;
  std::atomic<int> plain{-1};  // a descriptor of our own, without O_DIRECT

  explicit Job(const accel_io_request& request);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  bool writes() const { return request.flags & ACCEL_IO_WRITE; }
  int64_t end() const { return request.offset + request.size; }
  bool exhausted() const { return error || next >= end(); }
  bool ended() const { return blocks == 0 && exhausted(); }
  // Keeps the error of the lowest offset.
  void fail(int32_t code, int64_t offset);
  accel_io_result result() const;
  // A descriptor that takes any size, offset and memory, or -1 with errno.
  int plain_descriptor();
};

struct Block {
  Job* job = nullptr;
  char *user = nullptr, *memory = nullptr;  // the caller's memory; that of the system call, which can be staging
  int64_t offset = 0, size = 0, got = 0;
  int64_t limit = 0;    // bytes of the next system call, at most; 0: no limit
  int32_t slot = -1;    // of the staging memory
  int32_t retries = 0;
  bool plain = false;   // through the page cache

  int descriptor() const { return plain ? job->plain.load() : job->request.fd; }
  int64_t rest() const { return limit && limit < size - got ? limit : size - got; }
};

enum class Next { kAgain, kOver };

// What the next block of a job would be. staged: its memory is not aligned as O_DIRECT demands.
struct Shape {
  int64_t size;
  bool plain, staged;
};
Shape next_shape(const Job& job, int64_t block_size, int64_t staged_size);
void cut(Job& job, const Shape& shape, Block& block);

// Prepares the block for its first system call: its descriptor. Returns 0 or errno.
int prepare(Block& block);
// Takes the result of a system call, a count or a negated errno: the block is over, with *error 0 or errno, or its rest
// has to be transferred.
Next advance(Block& block, int64_t result, int* error);
// The block's system call on this thread: a count, or a negated errno.
int64_t transfer(const Block& block);

// Reserves the space of a write that makes the file longer. Best effort: the write itself reports what fails.
void reserve(const accel_io_request& request);

// Asks for huge pages below a large read: new memory then costs few page faults, and few segments of a device's request.
void advise(const accel_io_request& request);

} // namespace accel_ops::io
