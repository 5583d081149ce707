// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "io_engine.h"

#include <algorithm>
#include <cerrno>

namespace accel_ops::io {
namespace {

constexpr int64_t kPage = 4096, kLargestBlock = 128 << 20, kLargestStaged = 512 << 10;
constexpr int kLargestDepth = 4096, kMostThreads = 32;

int64_t block_size(const accel_io_options& options) {
  return std::clamp(options.block_size, kPage, kLargestBlock) / kPage * kPage;
}

int between(int64_t lowest, int64_t value, int64_t highest) {
  return static_cast<int>(std::clamp(value, lowest, highest));
}

} // namespace

Engine::Engine(const accel_io_options& options)
    : options_(options),
      block_size_(block_size(options)),
      staged_size_(std::min(block_size_, kLargestStaged)),
      slots_(options.engine == ACCEL_IO_URING ? between(1, options.depth, kLargestDepth) : 1),
      maximum_(options.engine == ACCEL_IO_URING
                   ? between(1, options.workers, kMostWorkers)
                   : between(1, static_cast<int64_t>(options.depth) * options.workers, kMostThreads)) {}

Engine::~Engine() = default;

int Engine::start() {
  // Every ring is opened now, so that whoever asks for the engine gets the error. Threads come with the work.
  const int first = options_.engine == ACCEL_IO_URING ? maximum_ : 1;
  for (int count = 0; count < first; count++) {
    const int error = start_worker();
    if (!error) continue;
    drain(-1);
    return error;
  }
  return 0;
}

int Engine::start_worker() {
  const Guard one_at_a_time(starting_);
  if (started_ == maximum_) return EAGAIN;
  auto worker = std::make_unique<Worker>(*this, started_);
  if (!worker) return ENOMEM;
  const int error = worker->start();
  if (error) return error;
  const Guard guard(mutex_);
  workers_[started_++] = std::move(worker);
  return 0;
}

void Engine::start_more_threads(const accel_io_request& request) {
  const int64_t blocks = request.size / block_size_ + 1;
  for (;;) {
    {
      const Guard guard(mutex_);
      if (started_ >= maximum_ || started_ >= in_flight_ + blocks) return;
    }
    if (start_worker()) return;  // those that there are do the work
  }
}

int64_t Engine::submit(const accel_io_request& request) {
  if (request.size < 0 || request.offset < 0 || request.offset > INT64_MAX - request.size) return -EINVAL;
  constexpr int32_t kLonger = ACCEL_IO_WRITE | ACCEL_IO_RESERVE;
  if ((request.flags & kLonger) == kLonger) reserve(request);
  if (!(request.flags & ACCEL_IO_WRITE)) advise(request);
  if (options_.engine == ACCEL_IO_THREADS) start_more_threads(request);
  auto job = std::make_unique<Job>(request);
  if (!job) return -ENOMEM;
  const Guard guard(mutex_);
  if (stopping_) return -ECANCELED;
  const int64_t id = ++ids_;
  job->id = id;
  Job* queued = job.get();
  jobs_.insert(std::move(job));
  if (queued->ended()) return id;
  (first_ ? last_->following : first_) = queued;
  last_ = queued;
  queued->queued = true;
  wake_all();
  return id;
}

void Engine::wake_all() {
  if (idle_) work_.notify_all();
  for (int index = 0; index < started_; index++) workers_[index]->wake_ring();
}

Job* Engine::front() {
  if (paused_) return nullptr;
  while (first_ && first_->exhausted()) unqueue(*first_);
  return first_;
}

void Engine::unqueue(Job& job) {
  if (!job.queued) return;
  Job* before = nullptr;
  for (Job* each = first_; each != &job; each = each->following) before = each;
  (before ? before->following : first_) = job.following;
  if (last_ == &job) last_ = before;
  job.queued = false;
}

void Engine::notify_if_ended(const Job& job) {
  if (job.ended() || in_flight_ == 0) ended_.notify_all();
}

int Engine::wait(int64_t id, int64_t timeout_ms, accel_io_result* result) {
  const Guard guard(mutex_);
  const Job* job = nullptr;
  // Another thread that waits for the same request may have forgotten it.
  const auto over = [&] {
    job = jobs_.find(id);
    return !job || job->ended();
  };
  if (!ended_.wait_until(mutex_, timeout_ms, over)) return ETIMEDOUT;
  if (!job) return ESRCH;
  *result = job->result();
  return 0;
}

int Engine::forget(int64_t id) {
  std::unique_ptr<Job> job;  // its descriptor is closed without the lock
  const Guard guard(mutex_);
  const Job* const found = jobs_.find(id);
  if (!found) return ESRCH;
  if (!found->ended()) return EBUSY;
  job = jobs_.remove(id);
  unqueue(*job);
  return 0;
}

int64_t Engine::progress(int64_t id) {
  const Guard guard(mutex_);
  const Job* const job = jobs_.find(id);
  return job ? job->moved : -ESRCH;
}

int Engine::cancel(int64_t id) {
  const Guard guard(mutex_);
  Job* const job = jobs_.find(id);
  if (!job) return ESRCH;
  if (!job->exhausted()) job->fail(ECANCELED, job->next);
  notify_if_ended(*job);
  return 0;
}

int Engine::pause(int64_t timeout_ms) {
  const Guard guard(mutex_);
  paused_ = true;
  return ended_.wait_until(mutex_, timeout_ms, [this] { return in_flight_ == 0; }) ? 0 : ETIMEDOUT;
}

void Engine::resume() {
  const Guard guard(mutex_);
  paused_ = false;
  wake_all();
}

int Engine::drain(int64_t timeout_ms) {
  {
    const Guard guard(mutex_);
    paused_ = false;
    wake_all();
    if (!ended_.wait_until(mutex_, timeout_ms, [this] { return jobs_.all_ended(); })) return ETIMEDOUT;
    while (first_) unqueue(*first_);
    stopping_ = true;
    work_.notify_all();
  }
  for (int index = 0; index < started_; index++) workers_[index]->join();
  while (started_) workers_[--started_].reset();
  return 0;
}

void Engine::abandon() {
  if (options_.engine != ACCEL_IO_URING) return;  // only rings have descriptors
  for (int index = 0; index < started_; index++) workers_[index]->abandon();
}

} // namespace accel_ops::io
