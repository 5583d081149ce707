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

class Engine {
 public:
  explicit Engine(const accel_io_options& options);
  ~Engine();

  // Returns 0 or errno.
  int start();
  int64_t submit(const accel_io_request& request);
  int wait(int64_t id, int64_t timeout_ms, accel_io_result* result);
  int forget(int64_t id);
  int64_t progress(int64_t id);
  int cancel(int64_t id);
  int pause(int64_t timeout_ms);
  void resume();
  // Waits for all requests and ends the threads.
  int drain(int64_t timeout_ms);
  void abandon();

 private:
  friend class Worker;

  static constexpr int kMostWorkers = 64;

  int start_worker();
  void start_more_threads(const accel_io_request& request);
  void wake_all();
  // Under the lock: the next job with something to do, or null.
  Job* front();
  // Under the lock: removes the job from the queue.
  void unqueue(Job& job);
  // Under the lock: the job may have ended.
  void notify_if_ended(const Job& job);

  const accel_io_options options_;
  const int64_t block_size_, staged_size_;
  const int slots_;    // blocks in flight of a worker
  const int maximum_;  // workers
  Mutex mutex_, starting_;
  Condition work_, ended_;
  Table jobs_;
  Job *first_ = nullptr, *last_ = nullptr;  // the queue
  int64_t ids_ = 0;
  int64_t in_flight_ = 0;
  int idle_ = 0;
  bool paused_ = false, stopping_ = false;
  int started_ = 0;  // workers
  std::unique_ptr<Worker> workers_[kMostWorkers];
};

// A thread, its backend and its staging memory.
class Worker : public Allocated {
 public:
  Worker(Engine& engine, int index);

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

  Engine& engine_;
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
