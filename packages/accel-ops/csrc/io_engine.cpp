// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The queue of an engine, and the functions of accel_io.h that work on it.
#include "io_engine.h"

#include <algorithm>
#include <cerrno>

namespace accel_ops::io {
namespace {

constexpr int64_t kPage = 4096, kLargestBlock = 128 << 20, kLargestStaged = 512 << 10;
constexpr int kLargestDepth = 4096, kMostThreads = 32;

int64_t whole_pages(const accel_io_options& options) {
  return std::clamp(options.block_size, kPage, kLargestBlock) / kPage * kPage;
}

int between(int64_t lowest, int64_t value, int64_t highest) {
  return static_cast<int>(std::clamp(value, lowest, highest));
}

} // namespace
} // namespace accel_ops::io

using namespace accel_ops::io;

accel_io::accel_io(const accel_io_options& given)
    : options(given),
      block_size(whole_pages(given)),
      staged_size(std::min(block_size, kLargestStaged)),
      slots(given.engine == ACCEL_IO_URING ? between(1, given.depth, kLargestDepth) : 1),
      maximum(given.engine == ACCEL_IO_URING
                  ? between(1, given.workers, kMostWorkers)
                  : between(1, static_cast<int64_t>(given.depth) * given.workers, kMostThreads)) {}

accel_io::~accel_io() = default;

int accel_io::start() {
  // Every ring is opened now, so that the caller that asks for the engine gets the error. Threads come with the work.
  const int count = options.engine == ACCEL_IO_URING ? maximum : 1;
  for (int number = 0; number < count; number++) {
    const int error = start_worker();
    if (!error) continue;
    drain(-1);
    return error;
  }
  return 0;
}

int accel_io::start_worker() {
  const Guard one_at_a_time(starting);
  if (started == maximum) return EAGAIN;
  auto worker = std::make_unique<Worker>(*this, started);
  if (!worker) return ENOMEM;
  const int error = worker->start();
  if (error) return error;
  const Guard guard(mutex);
  workers[started++] = std::move(worker);
  return 0;
}

void accel_io::start_more_threads(const accel_io_request& request) {
  const int64_t blocks = request.size / block_size + 1;
  for (;;) {
    {
      const Guard guard(mutex);
      if (started >= maximum || started >= in_flight + blocks) return;
    }
    if (start_worker()) return;  // those that there are do the work
  }
}

void accel_io::wake_all() {
  if (idle) work.notify_all();
  for (int index = 0; index < started; index++) workers[index]->wake_ring();
}

Job* accel_io::front() {
  if (paused) return nullptr;
  while (first && first->exhausted()) unqueue(*first);
  return first;
}

void accel_io::unqueue(Job& job) {
  if (!job.queued) return;
  Job* before = nullptr;
  for (Job* each = first; each != &job; each = each->following) before = each;
  (before ? before->following : first) = job.following;
  if (last == &job) last = before;
  job.queued = false;
}

void accel_io::notify_if_ended(const Job& job) {
  if (job.ended() || in_flight == 0) ended.notify_all();
}

int accel_io::drain(int64_t timeout_ms) {
  {
    const Guard guard(mutex);
    paused = false;
    wake_all();
    if (!ended.wait_until(mutex, timeout_ms, [this] { return jobs.all_ended(); })) return ETIMEDOUT;
    while (first) unqueue(*first);
    stopping = true;
    work.notify_all();
  }
  for (int index = 0; index < started; index++) workers[index]->join();
  while (started) workers[--started].reset();
  return 0;
}

int accel_io_open(const accel_io_options* options, accel_io** out) {
  *out = nullptr;
  auto engine = std::make_unique<accel_io>(*options);
  if (!engine) return ENOMEM;
  const int error = engine->start();
  if (!error) *out = engine.release();
  return error;
}

int64_t accel_io_submit(accel_io* engine, const accel_io_request* request) {
  if (request->size < 0 || request->offset < 0 || request->offset > INT64_MAX - request->size) return -EINVAL;
  constexpr int32_t kLonger = ACCEL_IO_WRITE | ACCEL_IO_RESERVE;
  if ((request->flags & kLonger) == kLonger) reserve(*request);
  if (!(request->flags & ACCEL_IO_WRITE)) advise(*request);
  if (engine->options.engine == ACCEL_IO_THREADS) engine->start_more_threads(*request);
  auto job = std::make_unique<Job>(*request);
  if (!job) return -ENOMEM;
  const Guard guard(engine->mutex);
  if (engine->stopping) return -ECANCELED;
  const int64_t id = ++engine->ids;
  job->id = id;
  Job* queued = job.get();
  engine->jobs.insert(std::move(job));
  if (queued->ended()) return id;
  (engine->first ? engine->last->following : engine->first) = queued;
  engine->last = queued;
  queued->queued = true;
  engine->wake_all();
  return id;
}

int accel_io_wait(accel_io* engine, int64_t id, int64_t timeout_ms, accel_io_result* result) {
  const Guard guard(engine->mutex);
  const Job* job = nullptr;
  // Another thread that waits for the same request may have forgotten it.
  const auto over = [&] {
    job = engine->jobs.find(id);
    return !job || job->ended();
  };
  if (!engine->ended.wait_until(engine->mutex, timeout_ms, over)) return ETIMEDOUT;
  if (!job) return ESRCH;
  *result = job->result();
  return 0;
}

int accel_io_forget(accel_io* engine, int64_t id) {
  std::unique_ptr<Job> job;  // its descriptor is closed without the lock
  const Guard guard(engine->mutex);
  const Job* const found = engine->jobs.find(id);
  if (!found) return ESRCH;
  if (!found->ended()) return EBUSY;
  job = engine->jobs.remove(id);
  engine->unqueue(*job);
  return 0;
}

int accel_io_pause(accel_io* engine, int64_t timeout_ms) {
  const Guard guard(engine->mutex);
  engine->paused = true;
  return engine->ended.wait_until(engine->mutex, timeout_ms, [=] { return engine->in_flight == 0; }) ? 0 : ETIMEDOUT;
}

int accel_io_resume(accel_io* engine) {
  const Guard guard(engine->mutex);
  engine->paused = false;
  engine->wake_all();
  return 0;
}

int accel_io_close(accel_io* engine, int64_t timeout_ms) {
  const int error = engine->drain(timeout_ms);
  if (!error) delete engine;
  return error;
}

int accel_io_abandon(accel_io* engine) {
  if (engine->options.engine != ACCEL_IO_URING) return 0;  // only rings have descriptors
  for (int index = 0; index < engine->started; index++) engine->workers[index]->abandon();
  return 0;
}
