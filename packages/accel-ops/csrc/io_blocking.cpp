// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Backends without a kernel queue: blocking system calls, and seeded faults for tests.
#include <cerrno>

#include "io_backend.h"

namespace accel_ops::io {
namespace {

class Blocking : public Backend {
 public:
  bool allocate(int depth) { return queued_.reserve(static_cast<size_t>(depth)); }
  void push(Block& block) override { queued_.push(&block); }

  int run(bool, Completions& ended) override {
    for (Block* block : queued_) ended.push({block, transfer(*block)});
    queued_.clear();
    return 0;
  }

 private:
  Array<Block*> queued_;
};

class Faulty : public Backend {
 public:
  Faulty(std::unique_ptr<Backend> backend, int64_t seed, int rate)
      : backend_(std::move(backend)), state_(static_cast<uint64_t>(seed)), rate_(rate) {}

  bool allocate(int depth) { return failed_.reserve(static_cast<size_t>(depth)); }

  void push(Block& block) override {
    const int error = draw(block);
    if (error) {
      failed_.push({&block, -error});
    } else {
      backend_->push(block);
      pushed_++;
    }
  }

  int run(bool wait, Completions& ended) override {
    const size_t before = ended.size();
    const int error = pushed_ ? backend_->run(wait && failed_.empty(), ended) : 0;
    pushed_ -= ended.size() - before;
    for (const Completion& failed : failed_) ended.push(failed);
    failed_.clear();
    return error;
  }

  void wake() override { backend_->wake(); }
  void abandon() override { backend_->abandon(); }

 private:
  // SplitMix64.
  uint64_t random() {
    uint64_t bits = state_ += 0x9e3779b97f4a7c15u;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    return bits ^ bits >> 31;
  }

  // Returns the errno of the block's system call; 0: it takes place, perhaps with fewer bytes.
  int draw(Block& block) {
    constexpr int kErrors[] = {EINTR, EAGAIN, EINVAL, EIO, ENOSPC};
    if (static_cast<int>(random() % 1000) >= rate_) return 0;
    const uint64_t kind = random() % 16;
    // Most are of the harmless kinds, so that blocks meet several of them before one ends the request.
    if (kind < 4) return kErrors[kind % 2];
    if (kind < 6) return EINVAL;
    if (kind == 6) return kErrors[3 + random() % 2];
    const int64_t size = block.size - block.got;
    block.limit = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(size));
    if (!block.plain && block.limit >= 512) block.limit -= block.limit % 512;
    return 0;
  }

  std::unique_ptr<Backend> backend_;
  uint64_t state_;
  int rate_;
  size_t pushed_ = 0;
  Completions failed_;
};

} // namespace

int Backend::run(bool, Completions&) {
  return ENOSYS;
}

std::unique_ptr<Backend> make_blocking(int depth) {
  auto blocking = std::make_unique<Blocking>();
  if (!blocking || !blocking->allocate(depth)) return nullptr;
  return blocking;
}

std::unique_ptr<Backend> make_faulty(std::unique_ptr<Backend> backend, int depth, int64_t seed, int rate) {
  auto faulty = std::make_unique<Faulty>(std::move(backend), seed, rate);
  if (!faulty || !faulty->allocate(depth)) return nullptr;
  return faulty;
}

} // namespace accel_ops::io
