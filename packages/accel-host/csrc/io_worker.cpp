// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// One thread of an engine: takes blocks, has them transferred, and reads every result.
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "io_engine.h"

namespace accel_host::io {
namespace {

// Blocks taken at a time: several workers share a request, and the device starts before all blocks are prepared.
constexpr size_t kBatch = 4;
constexpr int64_t kStagingBytes = 64 << 20;

int staging_slots(int slots, int64_t size) {
  const int64_t fitting = kStagingBytes / size > 2 ? kStagingBytes / size : 2;
  return static_cast<int>(fitting < slots ? fitting : slots);
}

void back_off(int retries) {
  const timespec pause{0, retries < 100 ? 10'000 : 1'000'000};
  nanosleep(&pause, nullptr);
}

} // namespace

Worker::Worker(Engine& engine, int index)
    : engine_(engine),
      index_(index),
      staging_(staging_slots(engine.slots_, engine.staged_size_), engine.staged_size_),
      blocks_(static_cast<size_t>(engine.slots_)) {
  for (Block& block : blocks_) free_.push_back(&block);
  completions_.reserve(blocks_.size() + 1);
}

int Worker::start() {
  sigset_t all, before;
  sigfillset(&all);
  // Signals are for the program's own threads.
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&thread_, nullptr, run_thread, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error) return error;
  Engine::Lock lock(engine_.mutex_);
  engine_.ended_.wait(lock, [this] { return ready_; });
  lock.unlock();
  if (error_) join();
  return error_;
}

void* Worker::run_thread(void* argument) {
  auto& worker = *static_cast<Worker*>(argument);
  const int error = worker.open();
  {
    const std::lock_guard<std::mutex> guard(worker.engine_.mutex_);
    worker.error_ = error;
    worker.ready_ = true;
    worker.engine_.ended_.notify_all();
  }
  if (!error) worker.loop();
  return nullptr;
}

// On the worker's thread: a ring belongs to the thread that opens it.
int Worker::open() {
  int error = 0;
  const accel_io_options& options = engine_.options_;
  backend_ = options.engine == ACCEL_IO_URING ? make_uring(engine_.slots_, &error) : make_blocking();
  if (backend_ && options.fault_rate)
    backend_ = make_faulty(std::move(backend_), options.fault_seed + index_, options.fault_rate);
  return error;
}

void Worker::loop() {
  bool more = false;
  while (take(&more)) {
    start_blocks();
    completions_.clear();
    if (const int error = backend_->run(!more, completions_)) {
      // Somebody has closed the ring's descriptor. What is in flight has failed, the rest is transferred without it.
      completions_.clear();
      for (Block& block : blocks_)
        if (block.job) completions_.push_back({&block, -error});
      backend_ = make_blocking();
    }
    for (const Completion& completion : completions_) settle(completion);
  }
}

bool Worker::take(bool* more) {
  Engine::Lock lock(engine_.mutex_);
  in_ring_ = false;
  fresh_.clear();
  *more = false;
  for (;;) {
    while (!free_.empty() && fresh_.size() < kBatch) {
      Job* job = engine_.front();
      if (!job) break;
      const Shape shape = next_shape(*job, engine_.block_size_, engine_.staged_size_);
      if (shape.staged && staging_.full()) break;
      Block& block = *free_.back();
      free_.pop_back();
      cut(*job, shape, block);
      if (shape.staged) block.slot = staging_.take();
      engine_.in_flight_++;
      fresh_.push_back(&block);
    }
    if (!fresh_.empty() || free_.size() < blocks_.size()) break;
    if (engine_.stopping_ && !engine_.first_) return false;
    engine_.idle_++;
    engine_.work_.wait(lock);
    engine_.idle_--;
  }
  *more = fresh_.size() == kBatch && !free_.empty();
  in_ring_ = !*more && !free_.empty();
  return true;
}

void Worker::start_blocks() {
  for (Block* block : fresh_) {
    int error = prepare(*block);
    if (!error && !block->plain && block->slot >= 0) {
      block->memory = staging_.memory(block->slot);
      if (block->job->writes()) std::memcpy(block->memory, block->user, static_cast<size_t>(block->size));
    }
    if (error) finish(*block, error);
    else backend_->push(*block);
  }
}

void Worker::settle(const Completion& completion) {
  Block& block = *completion.block;
  int error = 0;
  if (advance(block, completion.result, &error) == Next::kOver) {
    finish(block, error);
    return;
  }
  if (completion.result < 0 && block.retries > 1) back_off(block.retries);
  backend_->push(block);
}

void Worker::finish(Block& block, int error) {
  if (block.slot >= 0) staging_.release(block.slot);
  const std::lock_guard<std::mutex> guard(engine_.mutex_);
  Job& job = *block.job;
  job.moved += block.got;
  if (error) job.fail(error, block.offset + block.got);
  job.blocks--;
  engine_.in_flight_--;
  engine_.notify_if_ended(job);
  block.job = nullptr;
  free_.push_back(&block);
}

// Under the engine's lock.
void Worker::wake_ring() {
  if (in_ring_) backend_->wake();
}

void Worker::abandon() {
  if (backend_) backend_->abandon();
}

} // namespace accel_host::io
