// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Asynchronous file I/O as a part of the C library of accel_ops.h, whose version number it shares.
//
// Functions that return `int` return 0 or a value of errno. An engine may be used by several threads at a time; none of
// its functions may be called in a child of fork() but accel_io_abandon.
#pragma once

#include <stdint.h>

#include "accel_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

// Engines. ACCEL_IO_URING: Linux 5.6 or later, where neither a sysctl nor a seccomp filter forbids it.
enum { ACCEL_IO_URING = 1, ACCEL_IO_THREADS = 2 };

// Flags of a request. ACCEL_IO_DIRECT: the descriptor was opened with O_DIRECT. ACCEL_IO_RESERVE: reserve the file's
// space before a write that makes it longer.
enum { ACCEL_IO_WRITE = 1, ACCEL_IO_DIRECT = 2, ACCEL_IO_RESERVE = 4 };

// An engine: threads, their queue, and the requests in it.
typedef struct accel_io accel_io;

typedef struct {
  int64_t block_size;  // bytes of one system call, at most
  int64_t fault_seed;  // of the random numbers of fault_rate
  int32_t engine;
  int32_t depth;       // blocks in flight of one worker, at most
  int32_t workers;
  int32_t fault_rate;  // for tests: this many of 1000 system calls fail, or transfer less than they were asked for
} accel_io_options;

// A transfer between memory and a file. Memory and descriptor stay the caller's, who keeps both until the request has
// ended. The alignments are those of accel_io_inspect; they matter with ACCEL_IO_DIRECT only.
typedef struct {
  void* data;
  int64_t size, offset;
  int32_t fd, flags, memory_alignment, offset_alignment;
} accel_io_request;

// How a request ended. `done` bytes from its first on were transferred, without a gap. `error` is 0 or a value of errno:
// ENODATA: the file ends at error_offset; ECANCELED. It is that of the lowest offset at which something failed.
typedef struct {
  int64_t done, error_offset;
  int32_t error, reserved;
} accel_io_result;

// What an open descriptor refers to. Alignments in bytes for O_DIRECT; both 0: the file has no direct I/O.
typedef struct {
  int64_t size;
  int32_t memory_alignment, offset_alignment;
  int32_t mode, reserved;  // as st_mode of stat()
} accel_io_file;

static_assert(sizeof(accel_io_options) == 32 && offsetof(accel_io_options, fault_rate) == 28, "structs are packed");
static_assert(sizeof(accel_io_request) == 40 && offsetof(accel_io_request, flags) == 28, "structs are packed");
static_assert(sizeof(accel_io_result) == 24 && sizeof(accel_io_file) == 24, "structs are packed");

// Opens an engine; *out is null on errors. ENOSYS, EPERM, ENOMEM, …: this system has no io_uring for this process.
ACCEL_API int accel_io_open(const accel_io_options* options, accel_io** out);

// Queues a request; returns its number, which is positive, or a negated value of errno.
ACCEL_API int64_t accel_io_submit(accel_io* engine, const accel_io_request* request);

// Waits for the end of a request. timeout_ms: negative: without limit. ETIMEDOUT: it has not ended. ESRCH: unknown, or
// forgotten.
ACCEL_API int accel_io_wait(accel_io* engine, int64_t id, int64_t timeout_ms, accel_io_result* result);

// Forgets a request that has ended. ESRCH; EBUSY: it has not ended.
ACCEL_API int accel_io_forget(accel_io* engine, int64_t id);

// Starts no further block, and waits until none is in flight. ETIMEDOUT: some are; the engine is paused nevertheless.
ACCEL_API int accel_io_pause(accel_io* engine, int64_t timeout_ms);
ACCEL_API int accel_io_resume(accel_io* engine);

// Waits for all requests, then frees the engine. ETIMEDOUT: some have not ended; the engine remains.
ACCEL_API int accel_io_close(accel_io* engine, int64_t timeout_ms);

// In a child of fork(): closes the descriptors that it has inherited of the engine. The memory is not freed.
ACCEL_API int accel_io_abandon(accel_io* engine);

// A whole request on the calling thread, without an engine.
ACCEL_API int accel_io_run(const accel_io_request* request, accel_io_result* result);

ACCEL_API int accel_io_inspect(int32_t fd, accel_io_file* file);

#ifdef __cplusplus
}
#endif
