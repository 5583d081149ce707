// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// One thread of an engine: takes blocks, has them transferred, and reads every result.
#include <cerrno>
#include <ctime>

#include "io_copy.h"
#include "io_engine.h"

namespace accel_ops::io {
namespace {

// Blocks taken at a time: several workers share a request, and the device starts before all blocks are prepared.
constexpr size_t kBatch = 4;
// Enough for the device to have work while blocks are copied.
constexpr int64_t kStagingBytes = 16 << 20;

int staging_slots(int slots, int64_t size) {
  const int64_t fitting = kStagingBytes / size > 2 ? kStagingBytes / size : 2;
  return static_cast<int>(fitting < slots ? fitting : slots);
}

void back_off(int retries) {
  const timespec pause{0, retries < 100 ? 10'000 : 1'000'000};
  nanosleep(&pause, nullptr);
}

} // namespace

Worker::Worker(accel_io& engine, int index)
    : engine_(engine),
      index_(index),
      staging_(staging_slots(engine.slots, engine.staged_size), engine.staged_size) {}

bool Worker::allocate() {
  const auto slots = static_cast<size_t>(engine_.slots);
  spare_ = make_blocking(engine_.slots);
  if (!spare_ || !staging_.reserve() || !blocks_.reserve(slots) || !free_.reserve(slots) ||
      !fresh_.reserve(kBatch) || !completions_.reserve(slots) || !copies_.reserve(slots))
    return false;
  for (size_t slot = 0; slot < slots; slot++) blocks_.push(Block{});
  for (Block& block : blocks_) free_.push(&block);
  return true;
}

int Worker::start() {
  if (!allocate()) return ENOMEM;
  if (const int error = start_thread(&thread_, run_thread, this)) return error;
  {
    const Guard guard(engine_.mutex);
    engine_.ended.wait_until(engine_.mutex, -1, [this] { return ready_; });
  }
  if (error_) join();
  return error_;
}

void* Worker::run_thread(void* argument) {
  auto& worker = *static_cast<Worker*>(argument);
  const int error = worker.open();
  {
    const Guard guard(worker.engine_.mutex);
    worker.error_ = error;
    worker.ready_ = true;
    worker.engine_.ended.notify_all();
  }
  if (!error) worker.loop();
  return nullptr;
}

// On the worker's thread: a ring belongs to the thread that opens it.
int Worker::open() {
  int error = 0;
  const accel_io_options& options = engine_.options;
  backend_ = options.engine == ACCEL_IO_URING ? make_uring(engine_.slots, &error) : std::move(spare_);
  if (!backend_ || !options.fault_rate) return error;
  backend_ = make_faulty(std::move(backend_), engine_.slots, options.fault_seed + index_, options.fault_rate);
  return backend_ ? 0 : ENOMEM;
}

void Worker::loop() {
  bool more = false;
  while (take(&more)) {
    start_blocks();
    completions_.clear();
    const bool waits = !more && copies_.empty() && free_.size() < blocks_.size();
    const int error = backend_->run(waits, completions_);
    // Some devices report all that they have done at once: they have to have more to do while it is copied.
    if (error || !more || !completions_.empty()) {
      for (const Completion& completion : copies_) settle(completion);
      copies_.clear();
    }
    if (error) {
      // Somebody has closed the ring's descriptor. What is in flight has failed, the rest is transferred without it.
      completions_.clear();
      for (Block& block : blocks_)
        if (block.job) completions_.push({&block, -error});
      if (spare_) backend_ = std::move(spare_);
    }
    for (const Completion& completion : completions_) {
      const Block& block = *completion.block;
      if (block.slot >= 0 && !block.job->writes()) copies_.push(completion);
      else settle(completion);
    }
  }
}

// Whether half of the staging memory is being read into, so that the other half is for what is copied.
bool Worker::half_is_read() const {
  const int half = staging_.slots() > 1 ? staging_.slots() / 2 : 1;
  return staging_.taken() - static_cast<int>(copies_.size()) >= half;
}

bool Worker::take(bool* more) {
  const Guard guard(engine_.mutex);
  in_ring_ = false;
  fresh_.clear();
  *more = false;
  for (;;) {
    while (!free_.empty() && fresh_.size() < kBatch) {
      Job* job = engine_.front();
      if (!job) break;
      const Shape shape = next_shape(*job, engine_.block_size, engine_.staged_size);
      if (shape.staged && (staging_.full() || (!job->writes() && half_is_read()))) break;
      Block& block = *free_.pop();
      cut(*job, shape, block);
      if (shape.staged) block.slot = staging_.take();
      engine_.in_flight++;
      fresh_.push(&block);
    }
    if (!fresh_.empty() || free_.size() < blocks_.size()) break;
    if (engine_.stopping && !engine_.first) return false;
    engine_.idle++;
    engine_.work.wait(engine_.mutex);
    engine_.idle--;
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
      if (block->job->writes()) copy_past_cache(block->memory, block->user, block->size);
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
  const Guard guard(engine_.mutex);
  Job& job = *block.job;
  if (error) job.fail(error, block.offset + block.got);
  job.blocks--;
  engine_.in_flight--;
  engine_.notify_if_ended(job);
  block.job = nullptr;
  free_.push(&block);
}

// Under the engine's lock.
void Worker::wake_ring() {
  if (in_ring_) backend_->wake();
}

void Worker::abandon() {
  if (backend_) backend_->abandon();
}

} // namespace accel_ops::io
