// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "blocks.h"

#include <ucontext.h>

#include <atomic>
#include <cstring>
#include <memory>

namespace accel {

namespace {

constexpr size_t kStack = 128 << 10;
// Uninitialized shared memory holds anything; as a number it is the largest of its kind, which no maximum hides.
constexpr int kPoison = 0xff;

std::vector<Kernel>& table() {
  static auto* made = new std::vector<Kernel>();
  return *made;
}

std::atomic<size_t> shared_used{0};

struct Fiber {
  ucontext_t context;
  bool ended = false;
};

// One value a lane; two turns, as a lane may be one shuffle ahead of another that has not read yet.
struct Warp {
  std::vector<uint32_t> ready;
  std::vector<uint32_t> waiting;
  uint32_t values[2][kWarp];
  uint32_t turn = 0, lanes = 0;
};

class Block {
 public:
  Block(const Kernel& kernel, void** arguments, uint32_t groups, uint32_t items, uint64_t seed)
      : kernel_(kernel), arguments_(arguments), place_{0, groups, 0, items}, random_(seed), fibers_(items),
        warps_((items + kWarp - 1) / kWarp), stacks_(new char[items * kStack]), shared_(new char[kSharedBytes]) {}

  const char* run(uint32_t group);
  const Place& place() const { return place_; }
  void* shared() { return shared_.get(); }
  void barrier();
  uint32_t shuffle(uint32_t value, uint32_t mask);
  void call() { kernel_.call(kernel_.kernel, arguments_); }

 private:
  void start(uint32_t item);
  Warp* next();
  void resume(uint32_t item);
  void leave();
  void release(std::vector<uint32_t>& waiting);
  uint32_t random(size_t below);
  static void entry();

  const Kernel& kernel_;
  void** arguments_;
  Place place_;
  uint64_t random_;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::unique_ptr<char[]> stacks_, shared_;
  std::vector<uint32_t> at_barrier_;
  Warp* current_ = nullptr;
  uint32_t stay_ = 1;
  const char* problem_ = nullptr;
  ucontext_t scheduler_;
};

thread_local Block* block = nullptr;
// Its own function, as a compiler may keep a thread's address over a switch.
__attribute__((noinline)) Block& here() { return *block; }

uint32_t Block::random(size_t below) {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return static_cast<uint32_t>(random_ >> 11) % static_cast<uint32_t>(below);
}

void Block::entry() {
  here().call();
  Block& mine = here();
  mine.fibers_[mine.place_.item].ended = true;
  mine.leave();
}

void Block::start(uint32_t item) {
  auto& fiber = fibers_[item];
  fiber.ended = false;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = stacks_.get() + item * kStack;
  fiber.context.uc_stack.ss_size = kStack;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, &Block::entry, 0);
  warps_[item / kWarp].ready.push_back(item);
}

const char* Block::run(uint32_t group) {
  place_.group = group;
  problem_ = nullptr;
  // Once in how many turns another warp has its turn: some blocks let one get far ahead of the others.
  stay_ = 8u << 4 * random(3);
  at_barrier_.clear();
  std::memset(shared_.get(), kPoison, kSharedBytes);
  for (auto& warp : warps_) warp = Warp{};
  for (uint32_t item = 0; item < place_.items; ++item) start(item);
  for (auto& warp : warps_) warp.lanes = static_cast<uint32_t>(warp.ready.size());
  while ((current_ = next()) && !problem_) {
    auto& ready = current_->ready;
    const auto chosen = random(ready.size());
    const uint32_t item = ready[chosen];
    ready[chosen] = ready.back();
    ready.pop_back();
    resume(item);
  }
  if (problem_) return problem_;
  for (const auto& fiber : fibers_)
    if (!fiber.ended) return "a thread waits at a barrier or shuffle that others of its block do not reach";
  return nullptr;
}

Warp* Block::next() {
  if (current_ && !current_->ready.empty() && random(stay_)) return current_;
  const auto first = random(warps_.size());
  for (size_t i = 0; i < warps_.size(); ++i) {
    auto& warp = warps_[(first + i) % warps_.size()];
    if (!warp.ready.empty()) return &warp;
  }
  return nullptr;
}

void Block::resume(uint32_t item) {
  place_.item = item;
  swapcontext(&scheduler_, &fibers_[item].context);
}

void Block::leave() {
  const uint32_t item = place_.item;
  swapcontext(&fibers_[item].context, &scheduler_);
}

void Block::release(std::vector<uint32_t>& waiting) {
  for (const auto item : waiting) warps_[item / kWarp].ready.push_back(item);
  waiting.clear();
}

void Block::barrier() {
  at_barrier_.push_back(place_.item);
  if (at_barrier_.size() == place_.items) release(at_barrier_);
  leave();
}

uint32_t Block::shuffle(uint32_t value, uint32_t mask) {
  const uint32_t lane = place_.item % kWarp;
  auto& warp = warps_[place_.item / kWarp];
  const uint32_t turn = warp.turn % 2;
  if ((lane ^ mask) >= warp.lanes) problem_ = "a shuffle reads a lane that the warp does not have";
  warp.values[turn][lane] = value;
  warp.waiting.push_back(place_.item);
  if (warp.waiting.size() == warp.lanes) {
    ++warp.turn;
    release(warp.waiting);
  }
  leave();
  return warp.values[turn][(lane ^ mask) % kWarp];
}

} // namespace

Place place() {
  return here().place();
}
void barrier() {
  here().barrier();
}
uint32_t shuffle_xor(uint32_t value, uint32_t mask) {
  return here().shuffle(value, mask);
}
size_t reserve_shared(size_t bytes) {
  return shared_used.fetch_add((bytes + 15) / 16 * 16);
}
void* shared_at(size_t offset) {
  return static_cast<char*>(here().shared()) + offset;
}

void add_kernel(
    const char* name, const uint32_t* sizes, uint32_t count, void (*call)(const void*, void**), const void* kernel) {
  table().push_back({name, sizes, count, call, kernel});
}
const std::vector<Kernel>& kernels() {
  return table();
}
const Kernel* find_kernel(const char* name) {
  for (const auto& kernel : table())
    if (!std::strcmp(kernel.name, name)) return &kernel;
  return nullptr;
}

const char* run(const Kernel& kernel, uint32_t groups, uint32_t items, void** arguments) {
  static std::atomic<uint64_t> launches{0};
  Block mine(kernel, arguments, groups, items, (launches.fetch_add(1) + 1) * 0x9e3779b97f4a7c15u);
  Block* const outer = block;
  block = &mine;
  const char* problem = nullptr;
  for (uint32_t group = 0; group < groups && !problem; ++group) problem = mine.run(group);
  block = outer;
  return problem;
}

} // namespace accel
