// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "io_threads.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>

// glibc 2.32 and 2.34 gave these functions new versions when they moved from libpthread to libc. The old versions are the
// same functions and exist in every glibc; a wheel built here then runs on machines with glibc 2.17. There they are in
// libpthread, which Python and OpenMP have loaded. Programs that contain this file, perhaps statically, take the default.
#if defined(__GLIBC__) && defined(__PIC__) && !defined(__PIE__)
#if defined(__x86_64__)
#define ACCEL_OLD(function, x86, other) __asm__(".symver " #function "," #function "@GLIBC_" x86)
#elif defined(__aarch64__)
#define ACCEL_OLD(function, x86, other) __asm__(".symver " #function "," #function "@GLIBC_" other)
#endif
#endif
#if defined(ACCEL_OLD)
ACCEL_OLD(pthread_create, "2.2.5", "2.17");
ACCEL_OLD(pthread_join, "2.2.5", "2.17");
ACCEL_OLD(pthread_sigmask, "2.2.5", "2.17");
ACCEL_OLD(pthread_condattr_setclock, "2.3.3", "2.17");
#endif

namespace accel_ops::io {
namespace {

#if defined(__APPLE__)
constexpr clockid_t kClock = CLOCK_REALTIME;  // conditions know no other there
#else
constexpr clockid_t kClock = CLOCK_MONOTONIC;
#endif

} // namespace

Condition::Condition() {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
#if !defined(__APPLE__)
  pthread_condattr_setclock(&attributes, kClock);
#endif
  pthread_cond_init(&condition_, &attributes);
  pthread_condattr_destroy(&attributes);
}

timespec Condition::after(int64_t milliseconds) {
  constexpr int64_t kCentury = int64_t{100} * 365 * 86400;
  timespec end;
  clock_gettime(kClock, &end);
  end.tv_sec += static_cast<time_t>(std::min(milliseconds / 1000, kCentury));
  end.tv_nsec += static_cast<long>(milliseconds % 1000 * 1'000'000);
  if (end.tv_nsec >= 1'000'000'000) end.tv_sec++, end.tv_nsec -= 1'000'000'000;
  return end;
}

bool Condition::wait_to(Mutex& mutex, const timespec& end) {
  return pthread_cond_timedwait(&condition_, &mutex.mutex_, &end) != ETIMEDOUT;
}

int start_thread(pthread_t* thread, void* (*run)(void*), void* argument) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(thread, nullptr, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

void join_thread(pthread_t thread) {
  pthread_join(thread, nullptr);
}

} // namespace accel_ops::io
