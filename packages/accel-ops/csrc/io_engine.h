// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The queue of requests and the threads that work on it.
#pragma once

#include <memory>

#include "io_backend.h"
#include "io_staging.h"
#include "io_table.h"
#include "io_threads.h"

namespace accel_ops::io {

class Worker;
constexpr int kMostWorkers = 64;

} // namespace accel_ops::io

// The engine of accel_io.h.
struct accel_io : accel_ops::io::Allocated {
  using Job = accel_ops::io::Job;

  explicit accel_io(const accel_io_options& options);
  ~accel_io();

  // Returns 0 or errno.
  int start();
  int start_worker();
  void start_more_threads(const accel_io_request& request);
  // Waits for all requests and ends the threads.
  int drain(int64_t timeout_ms);
  // The others are called under the lock.
  void wake_all();
  // The next job with something to do, or null.
  Job* front();
  // Removes the job from the queue.
  void unqueue(Job& job);
  // The job may have ended.
  void notify_if_ended(const Job& job);

  const accel_io_options options;
  const int64_t block_size, staged_size;
  const int slots;    // blocks in flight of a worker
  const int maximum;  // workers
  accel_ops::io::Mutex mutex, starting;
  accel_ops::io::Condition work, ended;
  accel_ops::io::Table jobs;
  Job *first = nullptr, *last = nullptr;  // the queue
  int64_t ids = 0;
  int64_t in_flight = 0;
  int idle = 0;
  bool paused = false, stopping = false;
  int started = 0;  // workers
  std::unique_ptr<accel_ops::io::Worker> workers[accel_ops::io::kMostWorkers];
};

namespace accel_ops::io {

// A thread, its backend and its staging memory.
class Worker : public Allocated {
 public:
  Worker(accel_io& engine, int index);

  // Starts the thread and waits until its backend is open; 0 or errno.
  int start();
  void join() { join_thread(thread_); }
  void wake_ring();
  void abandon();

 private:
  static void* run_thread(void* worker);
  bool allocate();
  int open();
  void loop();
  // Takes up to kBatch blocks of the queue; false: the engine ends.
  bool take(bool* more);
  bool half_is_read() const;
  void start_blocks();
  void settle(const Completion& completion);
  void finish(Block& block, int error);

  accel_io& engine_;
  const int index_;
  pthread_t thread_{};
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Backend> spare_;  // blocking, for when the ring fails
  Staging staging_;
  Array<Block> blocks_;
  Array<Block*> free_, fresh_;
  Completions completions_;
  Completions copies_;  // of reads into staging memory, which has not been copied
  bool ready_ = false, in_ring_ = false;
  int error_ = 0;
};

} // namespace accel_ops::io
