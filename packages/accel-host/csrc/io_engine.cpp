// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "io_engine.h"

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace accel_host::io {
namespace {

constexpr int64_t kPage = 4096, kLargestBlock = 128 << 20, kLargestStaged = 4 << 20;
constexpr int kLargestDepth = 4096, kMostWorkers = 64, kMostThreads = 32;

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
  auto worker = std::make_unique<Worker>(*this, static_cast<int>(workers_.size()));
  const int error = worker->start();
  if (error) return error;
  const std::lock_guard<std::mutex> guard(mutex_);
  workers_.push_back(std::move(worker));
  return 0;
}

void Engine::start_more_threads(const accel_io_request& request) {
  const int64_t blocks = request.size / block_size_ + 1;
  for (;;) {
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      const auto workers = static_cast<int64_t>(workers_.size());
      if (workers >= maximum_ || workers >= in_flight_ + blocks) return;
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
  const std::lock_guard<std::mutex> guard(mutex_);
  if (stopping_) return -ECANCELED;
  const int64_t id = ++ids_;
  job->id = id;
  Job* queued = job.get();
  jobs_.emplace(id, std::move(job));
  if (queued->ended()) return id;
  (first_ ? last_->following : first_) = queued;
  last_ = queued;
  queued->queued = true;
  wake_all();
  return id;
}

void Engine::wake_all() {
  if (idle_) work_.notify_all();
  for (const auto& worker : workers_) worker->wake_ring();
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

template <class Condition>
bool Engine::wait_until(Lock& lock, int64_t timeout_ms, Condition condition) {
  if (timeout_ms >= 0) return ended_.wait_for(lock, std::chrono::milliseconds(timeout_ms), condition);
  ended_.wait(lock, condition);
  return true;
}

int Engine::wait(int64_t id, int64_t timeout_ms, accel_io_result* result) {
  Lock lock(mutex_);
  const auto found = [&] { return jobs_.find(id); };
  if (found() == jobs_.end()) return ESRCH;
  // Another thread that waits for the same request may have forgotten it.
  if (!wait_until(lock, timeout_ms, [&] { return found() == jobs_.end() || found()->second->ended(); }))
    return ETIMEDOUT;
  const auto entry = found();
  if (entry == jobs_.end()) return ESRCH;
  *result = entry->second->result();
  return 0;
}

int Engine::forget(int64_t id) {
  std::unique_ptr<Job> job;  // its descriptor is closed without the lock
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto entry = jobs_.find(id);
  if (entry == jobs_.end()) return ESRCH;
  if (!entry->second->ended()) return EBUSY;
  job = std::move(entry->second);
  jobs_.erase(entry);
  unqueue(*job);
  return 0;
}

int64_t Engine::progress(int64_t id) {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto entry = jobs_.find(id);
  return entry == jobs_.end() ? -ESRCH : entry->second->moved;
}

int Engine::cancel(int64_t id) {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto entry = jobs_.find(id);
  if (entry == jobs_.end()) return ESRCH;
  Job& job = *entry->second;
  if (!job.exhausted()) job.fail(ECANCELED, job.next);
  notify_if_ended(job);
  return 0;
}

int Engine::pause(int64_t timeout_ms) {
  Lock lock(mutex_);
  paused_ = true;
  return wait_until(lock, timeout_ms, [this] { return in_flight_ == 0; }) ? 0 : ETIMEDOUT;
}

void Engine::resume() {
  const std::lock_guard<std::mutex> guard(mutex_);
  paused_ = false;
  wake_all();
}

int Engine::drain(int64_t timeout_ms) {
  {
    Lock lock(mutex_);
    paused_ = false;
    wake_all();
    const auto over = [this] {
      return std::all_of(jobs_.begin(), jobs_.end(), [](const auto& entry) { return entry.second->ended(); });
    };
    if (!wait_until(lock, timeout_ms, over)) return ETIMEDOUT;
    while (first_) unqueue(*first_);
    stopping_ = true;
    work_.notify_all();
  }
  for (const auto& worker : workers_) worker->join();
  workers_.clear();
  return 0;
}

void Engine::abandon() {
  if (options_.engine != ACCEL_IO_URING) return;  // only rings have descriptors
  for (const auto& worker : workers_) worker->abandon();
}

} // namespace accel_host::io
