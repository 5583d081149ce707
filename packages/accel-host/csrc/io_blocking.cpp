// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Backends without a kernel queue: blocking system calls, and seeded faults for tests.
#include <cerrno>
#include <random>

#include "io_backend.h"

namespace accel_host::io {
namespace {

class Blocking : public Backend {
 public:
  void push(Block& block) override { queued_.push_back(&block); }

  int run(bool, std::vector<Completion>& ended) override {
    for (Block* block : queued_) ended.push_back({block, transfer(*block)});
    queued_.clear();
    return 0;
  }

 private:
  std::vector<Block*> queued_;
};

class Faulty : public Backend {
 public:
  Faulty(std::unique_ptr<Backend> backend, int64_t seed, int rate)
      : backend_(std::move(backend)), random_(static_cast<uint64_t>(seed)), rate_(rate) {}

  void push(Block& block) override {
    const int error = draw(block);
    if (error) {
      failed_.push_back({&block, -error});
    } else {
      backend_->push(block);
      pushed_++;
    }
  }

  int run(bool wait, std::vector<Completion>& ended) override {
    const size_t before = ended.size();
    const int error = pushed_ ? backend_->run(wait && failed_.empty(), ended) : 0;
    pushed_ -= ended.size() - before;
    ended.insert(ended.end(), failed_.begin(), failed_.end());
    failed_.clear();
    return error;
  }

  void wake() override { backend_->wake(); }
  void abandon() override { backend_->abandon(); }

 private:
  // Returns the errno of the block's system call; 0: it takes place, perhaps with fewer bytes.
  int draw(Block& block) {
    constexpr int kErrors[] = {EINTR, EAGAIN, EINVAL, EIO, ENOSPC};
    if (static_cast<int>(random_() % 1000) >= rate_) return 0;
    const uint64_t kind = random_() % 16;
    // Most are of the harmless kinds, so that blocks meet several of them before one ends the request.
    if (kind < 4) return kErrors[kind % 2];
    if (kind < 6) return EINVAL;
    if (kind == 6) return kErrors[3 + random_() % 2];
    const int64_t size = block.size - block.got;
    block.limit = 1 + static_cast<int64_t>(random_() % static_cast<uint64_t>(size));
    if (!block.plain && block.limit >= 512) block.limit -= block.limit % 512;
    return 0;
  }

  std::unique_ptr<Backend> backend_;
  std::mt19937_64 random_;
  int rate_;
  size_t pushed_ = 0;
  std::vector<Completion> failed_;
};

} // namespace

std::unique_ptr<Backend> make_blocking() {
  return std::make_unique<Blocking>();
}

std::unique_ptr<Backend> make_faulty(std::unique_ptr<Backend> backend, int64_t seed, int rate) {
  return std::make_unique<Faulty>(std::move(backend), seed, rate);
}

} // namespace accel_host::io
