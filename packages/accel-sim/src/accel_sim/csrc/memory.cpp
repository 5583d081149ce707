// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Memory of the device: host memory, counted and limited for each device; and page-locked host memory.
#include "hooks.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace accel_sim {

std::string upper_name() {
  auto name = config().name;
  for (auto& letter : name) letter = static_cast<char>(std::toupper(letter));
  return name;
}

namespace {

using c10::CachingDeviceAllocator::DeviceStats;
constexpr size_t kBlock = 512;             // what a request is rounded up to
constexpr size_t kSegment = 2ull << 20;    // the cache grows by this much

using c10::CachingAllocator::Stat;

std::string mebibytes(size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

class Account {
 public:
  void take(size_t bytes, size_t asked, c10::DeviceIndex device) {
    std::lock_guard<std::mutex> lock(mutex);
    const auto used = static_cast<size_t>(stats.allocated_bytes[0].current);
    const auto limit = static_cast<size_t>(static_cast<double>(config().capacity) * fraction);
    if (used + bytes > limit) refuse(bytes, device, limit, used, " (simulated; ACCEL_SIM_MEMORY sets it).");
    count<&Stat::increase>(bytes, asked);
    reserve(used + bytes);
  }

  // The allocator is modelled, and gives the address.
  Piece* take_modelled(size_t asked, int64_t stream, c10::DeviceIndex device) {
    std::lock_guard<std::mutex> lock(mutex);
    const auto usable = config().capacity - std::min(config().reserve, config().capacity);
    const auto limit = std::min(usable, static_cast<size_t>(static_cast<double>(config().capacity) * fraction));
    auto* piece = model.take(asked, stream, limit);
    follow_model();
    if (!piece) {
      refuse(
          asked, device, limit, model.reserved,
          ". Of the allocated memory " + mebibytes(model.allocated) + " is allocated by PyTorch, and " +
              mebibytes(model.reserved - model.allocated) + " is reserved by PyTorch but unallocated (simulated; " +
              mebibytes(config().capacity - usable) + " kept for the runtime).");
    }
    count<&Stat::increase>(piece->size, asked);
    return piece;
  }

  void give_back_modelled(Piece* piece, size_t asked) {
    std::lock_guard<std::mutex> lock(mutex);
    count<&Stat::decrease>(piece->size, asked);
    model.give_back(piece);
  }

  void give_back(size_t bytes, size_t asked) {
    std::lock_guard<std::mutex> lock(mutex);
    count<&Stat::decrease>(bytes, asked);
  }

  void empty_cache() {
    std::lock_guard<std::mutex> lock(mutex);
    if (config().modelled) {
      model.empty_cache();
      return follow_model();
    }
    const auto used = static_cast<size_t>(stats.allocated_bytes[0].current);
    const auto held = static_cast<size_t>(stats.reserved_bytes[0].current);
    const auto needed = std::min(rounded(used, kSegment), held);
    if (held > needed) {
      stats.reserved_bytes[0].decrease(held - needed);
      stats.segment[0].decrease(static_cast<size_t>(stats.segment[0].current) - (needed + kSegment - 1) / kSegment);
      stats.num_device_free++;
    }
  }

  std::mutex mutex;
  DeviceStats stats;
  double fraction = 1.0;  // of the capacity, that this process may use
  CachingModel model;     // if it is modelled

 private:
  [[noreturn]] void refuse(size_t bytes, c10::DeviceIndex device, size_t limit, size_t used, const std::string& rest) {
    stats.num_ooms++;
    const auto free = limit - std::min(used, limit);
    const auto about = ". Tried to allocate " + mebibytes(bytes) + ". " + upper_name() + " " + std::to_string(device) +
        " has a total capacity of " + mebibytes(config().capacity) + " of which " + mebibytes(free) + " is free" + rest;
    // Metal's and Habana's allocators raise no OutOfMemoryError.
    TORCH_CHECK(
        config().type != c10::DeviceType::MPS, "MPS backend out of memory (MPS allocated: ", mebibytes(used),
        ", other allocations: 0 bytes, max allowed: ", mebibytes(limit), ")", about);
    TORCH_CHECK(
        config().type != c10::DeviceType::HPU, "[Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::",
        bytes, " (", static_cast<double>(bytes) / (1 << 20), ")MB", about);
    TORCH_CHECK_WITH(OutOfMemoryError, false, upper_name(), " out of memory", about);
  }
  // Counts a block that is taken or given back. The first of each kind of statistics is the aggregate; the pools are not
  // modelled.
  template <void (Stat::*change)(size_t)>
  void count(size_t bytes, size_t asked) {
    for (auto* all : {&stats.allocation, &stats.active}) ((*all)[0].*change)(1);
    for (auto* all : {&stats.allocated_bytes, &stats.active_bytes}) ((*all)[0].*change)(bytes);
    (stats.requested_bytes[0].*change)(asked);
  }
  void follow_model() {
    const auto held = static_cast<size_t>(stats.reserved_bytes[0].current);
    if (model.reserved > held) stats.reserved_bytes[0].increase(model.reserved - held);
    if (model.reserved < held) stats.reserved_bytes[0].decrease(held - model.reserved);
    stats.num_alloc_retries = static_cast<int64_t>(model.retries);
  }
  void reserve(size_t needed) {
    const auto held = static_cast<size_t>(stats.reserved_bytes[0].current);
    if (needed <= held) return;
    const auto wanted = std::min(rounded(needed, kSegment), config().capacity);
    stats.reserved_bytes[0].increase(wanted - held);
    stats.segment[0].increase((wanted - held + kSegment - 1) / kSegment);
    stats.num_device_alloc++;
  }
};

Account& account(c10::DeviceIndex device) {
  check_device(device);
  return singleton<std::array<Account, 64>>()[static_cast<size_t>(device)];
}

std::atomic<uint64_t> g_ids{1};  // of blocks and of page-locked ranges

void release(void* context) {
  auto* block = static_cast<Block*>(context);
  Observer::each([&](auto& observer) { observer.before_free(*block); });
  if (block->piece) {
    auto& mine = account(block->device);
    mine.give_back_modelled(block->piece, block->bytes);
    if (dry_run()) dry_run()->given_back(block->key, block->bytes, mine.model);
  } else {
    account(block->device).give_back(rounded(block->bytes, kBlock), block->bytes);
  }
  delete block;
}

class SimAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const auto device = current_device();
    if (bytes == 0) return {nullptr, c10::Device(config().type, device)};
    return adopt(c10::DataPtr(), bytes, device);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    for (int i = 0; i < config().count; i++) {
      const auto device = static_cast<c10::DeviceIndex>(i);
      account(device).empty_cache();
      Observer::each([&](auto& observer) { observer.cache_emptied(device); });
    }
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override { record_stream(data, stream); }
  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    auto& mine = account(device);
    std::lock_guard<std::mutex> lock(mine.mutex);
    return mine.stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    each(device, [](auto& stat) { stat.reset_accumulated(); });
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    each(device, [](auto& stat) { stat.reset_peak(); });
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    auto& mine = account(device);
    std::lock_guard<std::mutex> lock(mine.mutex);
    const auto held = static_cast<size_t>(mine.stats.reserved_bytes[0].current) + config().reserve;
    return {config().capacity - std::min(held, config().capacity), config().capacity};
  }

 private:
  template <typename Change>
  void each(c10::DeviceIndex device, Change change) {
    auto& mine = account(device);
    std::lock_guard<std::mutex> lock(mine.mutex);
    auto& s = mine.stats;
    for (auto* stats : {&s.allocation, &s.segment, &s.active, &s.allocated_bytes, &s.reserved_bytes,
                        &s.active_bytes, &s.requested_bytes}) {
      change((*stats)[0]);
    }
  }
};

// Memory of the model. host: a result that was computed in host memory, and stays there.
c10::DataPtr allocate_modelled(c10::DataPtr host, size_t bytes, c10::DeviceIndex device, uint64_t id, int64_t stream) {
  auto& mine = account(device);
  auto* piece = mine.take_modelled(bytes, stream, device);
  mark_used(device);
  auto* data = host.get() ? host.get() : piece->data;
  auto* block = new Block{std::move(host), bytes, device, id, stream, {}, piece};
  if (dry_run()) block->key = dry_run()->taken(bytes, mine.model);
  return {data, block, &release, c10::Device(config().type, device)};
}

} // namespace

void set_memory_fraction(c10::DeviceIndex index, double fraction) {
  auto& mine = account(index);
  std::lock_guard<std::mutex> lock(mine.mutex);
  mine.fraction = fraction;
}

double memory_fraction(c10::DeviceIndex index) {
  auto& mine = account(index);
  std::lock_guard<std::mutex> lock(mine.mutex);
  return mine.fraction;
}

c10::DataPtr adopt(c10::DataPtr host, size_t bytes, c10::DeviceIndex device) {
  check_fork();
  const auto id = g_ids++;
  const auto stream = current_stream(device);
  Allocation allocation{id, bytes, stream, host};
  Observer::each([&](auto& observer) { observer.before_allocation(allocation); });
  if (config().modelled && bytes) return allocate_modelled(std::move(host), bytes, device, id, stream.id());
  account(device).take(rounded(bytes, kBlock), bytes, device);
  mark_used(device);
  if (!host.get() && bytes) {
    host = c10::GetCPUAllocator()->allocate(bytes);
    if (is_lost(device)) std::memset(host.get(), 0xCD, bytes);  // to be seen: nothing is computed there
  }
  auto* data = host.get();
  auto* block = new Block{std::move(host), bytes, device, id, stream.id(), {}};
  return {data, block, &release, c10::Device(config().type, device)};
}

void record_stream(const c10::DataPtr& data, const c10::Stream& stream) {
  if (!Observer::any() || data.get_deleter() != &release) return;
  static_cast<Block*>(data.get_context())->recorded.push_back(stream.id());
}

uint64_t new_id() {
  return g_ids++;
}

uint64_t next_block() {
  return g_ids;
}

Block* block_of(const c10::StorageImpl& storage) {
  const auto& data = storage.data_ptr();
  return data.get_deleter() == &release ? static_cast<Block*>(data.get_context()) : nullptr;
}

c10::Allocator* allocator() {
  return &singleton<SimAllocator>();
}

void resize(const c10::Storage& storage, size_t bytes) {
  auto* impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
  const auto where = impl->device();
  auto data = bytes ? adopt(c10::DataPtr(), bytes, where.index()) : c10::DataPtr(nullptr, where);
  const auto kept = std::min(bytes, impl->nbytes());
  if (kept && !(dry_run() && dry_run()->skips_copy(kept))) std::memcpy(data.get(), impl->data(), kept);
  impl->set_data_ptr_noswap(std::move(data));
  impl->set_nbytes(bytes);
}

void register_memory() {
  c10::SetAllocator(config().type, allocator(), 255);
  at::setHostAllocator(config().type, pinned_allocator(), 255);
}

namespace {

// Page-locked host memory, which a device reaches by itself: host memory that we remember.
class PinnedAllocator final : public at::HostAllocator {
 public:
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
  c10::DataPtr allocate(size_t bytes) override {
    void* data = nullptr;
    if (!bytes) return {nullptr, nullptr, &PinnedAllocator::free_one, c10::Device(c10::DeviceType::CPU)};
    if (dry_run()) {
      data = dry_run()->pin(bytes);
    } else {
      const size_t alignment = config().like_hardware ? 512 : 4096;  // a pool cuts its pages
      TORCH_CHECK(posix_memalign(&data, alignment, (bytes + 63) / 64 * 64) == 0, "cannot allocate pinned host memory");
    }
    add(data, bytes);
    return {data, data, &PinnedAllocator::free_one, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &PinnedAllocator::free_one; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
  void add(void* data, size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto* base = static_cast<const char*>(data);
    ranges_[base] = {base, bytes, new_id()};
  }
  void drop(void* data) {
    std::optional<PinnedRange> gone;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const auto found = ranges_.find(static_cast<const char*>(data));
      if (found == ranges_.end()) return;
      gone = found->second;
      ranges_.erase(found);
    }
    Observer::each([&](auto& observer) { observer.before_host_free(gone->id); });
  }
  std::optional<PinnedRange> range(const void* pointer) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto after = ranges_.upper_bound(static_cast<const char*>(pointer));
    if (after == ranges_.begin()) return std::nullopt;
    const auto& found = (--after)->second;
    if (static_cast<const char*>(pointer) >= found.base + found.bytes) return std::nullopt;
    return found;
  }

 private:
  static void free_one(void* data);
  std::mutex mutex_;
  std::map<const char*, PinnedRange> ranges_;
};

PinnedAllocator& pinned() {
  return singleton<PinnedAllocator>();
}

void PinnedAllocator::free_one(void* data) {
  const auto range = pinned().range(data);
  pinned().drop(data);
  if (!range) return;
  dry_run() ? dry_run()->unpin(data, range->bytes) : std::free(data);
}

} // namespace

at::HostAllocator* pinned_allocator() {
  return &pinned();
}

std::optional<PinnedRange> pinned_range(const void* pointer) {
  return pinned().range(pointer);
}

void register_host(void* data, size_t bytes) {
  pinned().add(data, bytes);
}

void unregister_host(void* data) {
  pinned().drop(data);
}

} // namespace accel_sim
