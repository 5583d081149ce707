// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Calls file I/O from several threads, for sanitizers:
//
//     io FILE ENGINE [FAULTS]   ENGINE as in accel_io.h; FAULTS of 1000 system calls fail
//
// Each thread has a part of the file, writes and reads pieces of it, and compares every byte of what succeeded. Others
// pause, resume and cancel at the same time. Status: 1 where bytes differ, 2 where the engine does not exist here, 3 else.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accel_io.h"

enum { THREADS = 3, ROUNDS = 60, PIECES = 4, PART = 1 << 20 };

static accel_io* g_engine;
static int g_fd, g_flags, g_faults, g_over;
static accel_io_file g_file;

typedef struct {
  int index, differ, failed;
} Part;

static uint32_t next_random(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

static int64_t submit(int flags, char* data, int64_t size, int64_t offset) {
  const accel_io_request request = {data, size, offset, g_fd, flags | g_flags, g_file.memory_alignment,
                                    g_file.offset_alignment};
  return accel_io_submit(g_engine, &request);
}

// Waits for pieces; 0 if all of them succeeded.
static int wait_all(const int64_t* ids, Part* part) {
  int failed = 0;
  for (int i = 0; i < PIECES; ++i) {
    accel_io_result result;
    if (ids[i] < 0 || accel_io_wait(g_engine, ids[i], -1, &result)) exit(3);
    if (result.error && !g_faults) exit(3);
    failed += result.error != 0;
    if (accel_io_forget(g_engine, ids[i])) exit(3);
  }
  part->failed += failed;
  return failed;
}

static void* work(void* argument) {
  Part* part = argument;
  uint64_t state = 20261122u + (uint64_t)part->index;
  char *written = malloc(PART + 4096), *seen = malloc(PART + 4096);
  if (!written || !seen) exit(3);
  for (int round = 0; round < ROUNDS; ++round) {
    const int64_t piece = 1 + next_random(&state) % (PART / PIECES);
    const int64_t begin = (int64_t)part->index * PART + next_random(&state) % 4096;
    const int64_t room = piece * PIECES > PART - 4096 ? (PART - 4096) / PIECES : piece;
    char *from = written + next_random(&state) % 4096, *to = seen + next_random(&state) % 4096;
    for (int64_t i = 0; i < room * PIECES; ++i) from[i] = (char)next_random(&state);
    int64_t ids[PIECES];
    for (int i = 0; i < PIECES; ++i) ids[i] = submit(ACCEL_IO_WRITE, from + i * room, room, begin + i * room);
    if (wait_all(ids, part)) continue;
    for (int i = 0; i < PIECES; ++i) ids[i] = submit(0, to + i * room, room, begin + i * room);
    if (!wait_all(ids, part)) part->differ += memcmp(from, to, (size_t)(room * PIECES)) != 0;
  }
  free(written);
  free(seen);
  return NULL;
}

static void* interrupt(void* unused) {
  while (!__atomic_load_n(&g_over, __ATOMIC_ACQUIRE)) {
    accel_io_pause(g_engine, 5);
    accel_io_resume(g_engine);
    usleep(2000);
  }
  return unused;
}

int main(int count, char** arguments) {
  if (count < 3) return 3;
  g_faults = count > 3 ? atoi(arguments[3]) : 0;
  const accel_io_options options = {65536, 7, atoi(arguments[2]), 8, 2, g_faults};
  g_flags = ACCEL_IO_DIRECT;
  g_fd = open(arguments[1], O_RDWR | O_CREAT | O_DIRECT, 0600);
  if (g_fd < 0) g_flags = 0, g_fd = open(arguments[1], O_RDWR | O_CREAT, 0600);
  if (g_fd < 0 || ftruncate(g_fd, (off_t)THREADS * PART) || accel_io_inspect(g_fd, &g_file)) return 3;
  if (accel_io_open(&options, &g_engine)) return 2;
  pthread_t threads[THREADS], interrupter;
  Part parts[THREADS] = {{0}};
  pthread_create(&interrupter, NULL, interrupt, NULL);
  for (int i = 0; i < THREADS; ++i) parts[i].index = i, pthread_create(&threads[i], NULL, work, &parts[i]);
  int differ = 0, failed = 0;
  for (int i = 0; i < THREADS; ++i) {
    pthread_join(threads[i], NULL);
    differ += parts[i].differ, failed += parts[i].failed;
  }
  __atomic_store_n(&g_over, 1, __ATOMIC_RELEASE);
  pthread_join(interrupter, NULL);
  if (accel_io_close(g_engine, -1)) return 3;
  close(g_fd);
  printf("%d failed, %d differ\n", failed, differ);
  return differ != 0;
}
