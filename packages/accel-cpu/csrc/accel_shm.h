// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Collectives of processes on one host over shared memory, as a C library. It includes neither torch nor Python.
//
// A segment is an anonymous file (memfd): it has no name that another user could create first, and nothing remains of
// it when its processes end. One thread at a time may use a group.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define ACCEL_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

// Raised with every change of this file or of the segment's layout.
enum { ACCEL_SHM_VERSION = 2, ACCEL_SHM_NONCE = 32 };

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
  ACCEL_SHM_ALL_TO_ALL = 6       // `sends` of `input` to `receives` of `output`, bytes by rank
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
  ACCEL_SHM_LEFT = 7          // `rank` has left the group
};

typedef struct accel_shm_group accel_shm_group;

// What a rank asks for; also what a peer asked for, in a MISMATCH.
typedef struct {
  int32_t kind, type, operation, root;
  int64_t bytes;
  int64_t detail;  // a number that has to be equal on all ranks, such as a hash of shapes
} accel_shm_request;

// Python's functions, so that other threads run during a request, and Ctrl-C ends a wait. The caller holds the
// interpreter lock and finds the exception of `check_signals` set when a request was INTERRUPTED.
typedef struct {
  void* (*save_thread)(void);            // PyEval_SaveThread
  void (*restore_thread)(void* thread);  // PyEval_RestoreThread
  int (*check_signals)(void);            // PyErr_CheckSignals
} accel_shm_python;

typedef struct {
  const void* input;
  void* output;
  const int64_t* sends;     // of ALL_TO_ALL
  const int64_t* receives;
  int64_t timeout_ms;
  int32_t threads;          // upper limit for large copies and reductions
  const accel_shm_python* python;  // null: the caller holds no interpreter lock
  int32_t (*cancelled)(void);      // asked about ten times a second while waiting; non-zero gives up; may be null
} accel_shm_buffers;

typedef struct {
  int32_t status, rank;      // rank: whom the status is about, else -1
  accel_shm_request theirs;  // of a MISMATCH
} accel_shm_result;

// Creates a segment for `ranks` ranks of at most `bytes` bytes; returns its descriptor, or -errno. The memory is
// reserved, so that it cannot be missing later. nonce: ACCEL_SHM_NONCE random bytes.
ACCEL_API int32_t accel_shm_create(int32_t ranks, int64_t bytes, const uint8_t* nonce);

// Joins a segment. Returns null and sets *error to an errno if it is not the one that was created with this nonce for
// this user and number of ranks. The descriptor may be closed then. pids: process of each rank. spin_us: how long to
// wait busily before sleeping.
ACCEL_API accel_shm_group* accel_shm_join(
    int32_t fd, int32_t rank, int32_t ranks, const uint8_t* nonce, const int32_t* pids, int32_t spin_us,
    int32_t* error);

ACCEL_API int32_t accel_shm_run(
    accel_shm_group* group, const accel_shm_request* request, const accel_shm_buffers* buffers,
    accel_shm_result* result);

// Ends the group for all ranks. Any thread may call it, also while another one is in accel_shm_run, which then returns
// INTERRUPTED.
ACCEL_API void accel_shm_break(accel_shm_group* group);

ACCEL_API void accel_shm_leave(accel_shm_group* group);
ACCEL_API int32_t accel_shm_version(void);

#ifdef __cplusplus
}
#endif
