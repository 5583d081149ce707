// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Collectives of processes on one host over shared memory: what a rank asks for, and how that ends. python.cpp makes
// an extension module of them.
//
// A segment is an anonymous file (memfd): it has no name that another user could create first, and nothing remains of
// it when its processes end. One thread at a time may use a group.
#pragma once

#include <stddef.h>
#include <stdint.h>

// The version is raised with every change of this file or of the segment's layout.
enum { ACCEL_SHM_VERSION = 5, ACCEL_SHM_NONCE = 32 };

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

// How a request ended. All but OK and BAD_REQUEST end the group: every later request ends in the same way.
enum {
  ACCEL_SHM_OK = 0,
  ACCEL_SHM_BAD_REQUEST = 1,
  ACCEL_SHM_MISMATCH = 2,     // `rank` asked for something else
  ACCEL_SHM_DEAD = 3,         // `rank` ended
  ACCEL_SHM_STOPPED = 4,      // `rank` has been stopped by a signal for some seconds
  ACCEL_SHM_TIMEOUT = 5,      // `rank` did not arrive in time
  ACCEL_SHM_INTERRUPTED = 6,  // `rank` was interrupted
  ACCEL_SHM_LEFT = 7,         // `rank` has left the group
  // Entered by the leader of a host, about a rank of another one, which has another segment.
  ACCEL_SHM_HOST_LOST = 8,
  ACCEL_SHM_HOST_DIFFERS = 9  // it asked for something else
};

// What a rank asks for; also what a peer asked for, in a MISMATCH.
typedef struct {
  int32_t kind, type, operation, root;
  int64_t bytes;
  int64_t detail;  // a number that has to be equal on all ranks, such as a hash of shapes
} accel_shm_request;

typedef struct {
  const void* input;
  void* output;
  const int64_t* sends;     // of ALL_TO_ALL
  const int64_t* receives;
  int64_t timeout_ms;
  int32_t threads;          // upper limit for large copies and reductions
} accel_shm_buffers;

typedef struct {
  int32_t status, rank;      // rank: whom the status is about, else -1
  // Of a MISMATCH. Of an ALL_TO_ALL whose parts differ: `bytes` that `rank` sends to `root`, which expects `detail`.
  accel_shm_request theirs;
} accel_shm_result;
