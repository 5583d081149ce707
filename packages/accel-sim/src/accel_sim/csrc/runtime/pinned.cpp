// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory, which a device reaches by itself.
#include "runtime/observer.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <map>
#include <mutex>

namespace accel_sim {

namespace {

// Page-locked memory is host memory that we remember.
class PinnedAllocator final : public at::HostAllocator {
 public:
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
  c10::DataPtr allocate(size_t bytes) override {
    void* data = nullptr;
    if (bytes) {
      TORCH_CHECK(posix_memalign(&data, 4096, (bytes + 63) / 64 * 64) == 0, "cannot allocate pinned host memory");
      add(data, bytes);
    }
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
  static auto* instance = new PinnedAllocator();
  return *instance;
}

void PinnedAllocator::free_one(void* data) {
  pinned().drop(data);
  std::free(data);
}

} // namespace

at::HostAllocator* pinned_allocator() {
  return &pinned();
}

bool is_pinned(const void* pointer) {
  return pinned().range(pointer).has_value();
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
