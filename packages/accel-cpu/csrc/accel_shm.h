// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Collectives of processes on one host over shared memory: what a rank asks for, and how that ends. python.cpp makes
// an extension module of them. One thread at a time may use a group.
#pragma once

#include <cstdint>

// Element types of reductions. Other collectives move bytes, and take any number here: ranks have to agree on it.
enum {
  ACCEL_SHM_F32 = 0, ACCEL_SHM_BF16 = 1, ACCEL_SHM_F16 = 2, ACCEL_SHM_F64 = 3,
  ACCEL_SHM_I32 = 4, ACCEL_SHM_I64 = 5, ACCEL_SHM_I8 = 6, ACCEL_SHM_U8 = 7
};

enum { ACCEL_SHM_SUM = 0, ACCEL_SHM_AVG = 1, ACCEL_SHM_PRODUCT = 2, ACCEL_SHM_MIN = 3, ACCEL_SHM_MAX = 4 };

enum {
  ACCEL_SHM_BARRIER = 1,         // also compares the ranks' requests, before they use another backend
  ACCEL_SHM_ALL_REDUCE = 2,      // `bytes` of `output`, in place
  ACCEL_SHM_BROADCAST = 3,       // `bytes` of `output`, in place, from `root`
  ACCEL_SHM_ALL_GATHER = 4,      // `bytes` of `input` to each `bytes` of `output`
  ACCEL_SHM_REDUCE_SCATTER = 5,  // each `bytes` of `input` reduced into `bytes` of `output`
  ACCEL_SHM_ALL_TO_ALL = 6,      // `sends` of `input` to `receives` of `output`, bytes by rank
  ACCEL_SHM_REDUCE = 7           // `bytes` of `output` into those of `root`; the others' stay as they are
};

// How a request ended. All but OK end the group: every later request ends in the same way.
enum {
  ACCEL_SHM_OK = 0,
  ACCEL_SHM_MISMATCH = 1,     // `rank` asked for something else
  ACCEL_SHM_DEAD = 2,         // `rank` ended
  ACCEL_SHM_TIMEOUT = 3,      // `rank` did not arrive in time
  ACCEL_SHM_INTERRUPTED = 4,  // `rank` was interrupted
  ACCEL_SHM_LEFT = 5,         // `rank` has left the group
  // Entered by the leader of a host, about a rank of another one, which has another segment.
  ACCEL_SHM_HOST_LOST = 6,
  ACCEL_SHM_HOST_DIFFERS = 7  // it asked for something else
};

namespace accel_shm {

// What a rank asks for; ranks have to agree on all of it.
struct Request {
  int32_t kind, type, operation, root;
  int64_t bytes;
  int64_t detail;  // such as a hash of the shape
};

struct Buffers {
  const uint8_t* input;
  uint8_t* output;
  const int64_t* sends;  // of ALL_TO_ALL
  const int64_t* receives;
  int32_t threads;       // upper limit for large copies and reductions
};

struct Result {
  int32_t status, rank;  // rank: whom the status is about
  // Of a MISMATCH: what `rank` asked for; kind 0 if unknown. Of an ALL_TO_ALL whose parts differ: `bytes` that `rank`
  // sends to `root`, which expects `detail`.
  Request theirs;
};

} // namespace accel_shm
