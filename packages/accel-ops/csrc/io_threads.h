// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Threads and their synchronization by POSIX calls: those of the C++ standard library would bind the library to the
// libstdc++ and the glibc of the machine that built it.
#pragma once

#include <cstdint>

#include <pthread.h>

namespace accel_ops::io {

class Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() { pthread_mutex_lock(&mutex_); }
  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  friend class Condition;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

class Guard {
 public:
  explicit Guard(Mutex& mutex) : mutex_(mutex) { mutex_.lock(); }
  ~Guard() { mutex_.unlock(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  Mutex& mutex_;
};

// What threads wait for under a mutex, on a clock that nobody sets.
class Condition {
 public:
  Condition();
  ~Condition() { pthread_cond_destroy(&condition_); }
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;

  void notify_all() { pthread_cond_broadcast(&condition_); }
  void wait(Mutex& mutex) { pthread_cond_wait(&condition_, &mutex.mutex_); }
  // Waits until `holds()`; false after the timeout. timeout_ms: negative: without limit.
  template <class Holds>
  bool wait_until(Mutex& mutex, int64_t timeout_ms, Holds holds) {
    const timespec end = timeout_ms < 0 ? timespec{} : after(timeout_ms);
    while (!holds()) {
      if (timeout_ms < 0) wait(mutex);
      else if (!wait_to(mutex, end)) return holds();
    }
    return true;
  }

 private:
  static timespec after(int64_t milliseconds);
  // False once the time has come.
  bool wait_to(Mutex& mutex, const timespec& end);

  pthread_cond_t condition_;
};

// Starts a thread that takes no signals, which are for the program's own; 0 or errno.
int start_thread(pthread_t* thread, void* (*run)(void*), void* argument);
void join_thread(pthread_t thread);

} // namespace accel_ops::io
