// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "group.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace accel_shm {
namespace {

constexpr int64_t kSliceMs = 50;   // between two looks at the peer
constexpr int64_t kSharedUs = 50;  // for waiting with yields where ranks share CPUs
constexpr uint64_t kEnded = 0;

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int64_t now_us() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000 + now.tv_nsec / 1000;
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, int64_t ms) {
  const timespec limit{static_cast<time_t>(ms / 1000), static_cast<long>(ms % 1000) * 1000000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

// Start time of a process, of /proc/PID/stat; kEnded if there is none, or it has ended.
uint64_t start_of(int32_t pid) {
  char path[40], text[1024];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return kEnded;
  const ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) return kEnded;  // in between
  text[length] = '\0';
  // The name in parentheses may contain anything; the fields after it do not.
  const char* field = std::strrchr(text, ')');
  if (field == nullptr || field[1] == '\0' || field[2] == 'Z' || field[2] == 'X') return kEnded;
  for (int i = 0; i < 20 && field != nullptr; ++i) field = std::strchr(field + 1, ' ');
  return field != nullptr ? std::strtoull(field + 1, nullptr, 10) : kEnded;
}

bool reached(const Progress& progress, uint32_t phase) {
  // The difference, because the number wraps around.
  return static_cast<int32_t>(progress.phase.load(std::memory_order_acquire) - phase) >= 0;
}

// True when the peer has arrived, or `us` have passed. us: 0 where ranks share CPUs.
bool spin(const Progress& progress, uint32_t phase, int64_t us) {
  for (int i = 0; i < 64 && us > 0; ++i) {
    if (reached(progress, phase)) return true;
    pause_cpu();
  }
  const int64_t until = now_us() + (us > 0 ? us : kSharedUs);
  do {
    for (int i = 0; i < (us > 0 ? 32 : 1); ++i) {
      if (reached(progress, phase)) return true;
      pause_cpu();
    }
    // The peer, or another program, may be waiting for this CPU, also where there is one for each rank.
    sched_yield();
  } while (now_us() < until);
  return reached(progress, phase);
}

void sleep_until_changed(Progress& progress, uint32_t phase) {
  progress.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t seen = progress.phase.load(std::memory_order_seq_cst);
  if (static_cast<int32_t>(seen - phase) < 0) futex_wait(progress.phase, seen, kSliceMs);
  progress.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

} // namespace

int64_t now_ms() {
  return now_us() / 1000;
}

Peer::Peer(int32_t pid) : pid_(pid), started_(start_of(pid)) {}

bool Peer::has_ended() const {
  const uint64_t started = start_of(pid_);
  return started == kEnded || started != started_;
}

void Group::arrive() {
  Progress& progress = segment_.progress(rank_);
  progress.phase.store(++phase_, std::memory_order_seq_cst);
  if (progress.sleepers.load(std::memory_order_seq_cst) != 0) {
    syscall(SYS_futex, &progress.phase, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

// A status that is not OK ends the group, so that all ranks end in the same way.
int32_t Group::wait_for(int32_t rank) {
  Progress& progress = segment_.progress(rank);
  if (spin(progress, phase_, spin_us_)) return ACCEL_SHM_OK;
  for (int slice = 1;; ++slice) {
    sleep_until_changed(progress, phase_);
    if (reached(progress, phase_)) return ACCEL_SHM_OK;
    if (const uint32_t ended = segment_.ended().load()) {
      return fail(static_cast<int32_t>(ended & 0xffu), static_cast<int32_t>(ended >> 8));
    }
    const bool dead = peers_[static_cast<size_t>(rank)].has_ended();
    if (dead || progress.left.load() != 0) {
      // A peer that arrived and then ended, or left, has done its part.
      return reached(progress, phase_) ? ACCEL_SHM_OK : fail(dead ? ACCEL_SHM_DEAD : ACCEL_SHM_LEFT, rank);
    }
    if (now_ms() > deadline_ms_) return fail(ACCEL_SHM_TIMEOUT, rank);
    if (slice % 2 == 0 && gives_up()) return fail(ACCEL_SHM_INTERRUPTED, rank_);
  }
}

} // namespace accel_shm
