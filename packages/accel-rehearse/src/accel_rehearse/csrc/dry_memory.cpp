// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Host memory that is counted and not committed, and the ledger.
#include "dry.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/thread_name.h>

#include <cstring>

namespace accel_rehearse {

namespace {

// What stands for the device's own memory: that of a kernel, and of gloo, which moves what the device's collectives do.
bool is_of_device() {
  static thread_local const bool gloo = c10::getThreadName() == "pt_gloo_runloop";
  return gloo || setup().simulator->in_device_work();
}

// Counts the host's memory, and does not commit that of large tensors. A header stands before the memory: what frees
// it has its address only.
class CountedHostAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (!bytes) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    const bool large = bytes >= kLarge;
    const auto before = large ? kPage : kHeader;
    auto* base = static_cast<char*>(large ? reserve_addresses(bytes + before) : c10::alloc_cpu(bytes + before));
    if (!large) std::memset(base + before, 0, bytes);  // for results that are not computed
    const Header header{bytes, is_of_device() ? 0 : bytes, large};
    std::memcpy(base + before - sizeof header, &header, sizeof header);
    counts().add_host(static_cast<int64_t>(header.counted), false);
    return {base + before, base + before, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  struct Header {
    size_t bytes, counted;
    bool large;
  };
  static constexpr size_t kLarge = 256 << 10;
  static constexpr size_t kPage = 4096;
  static constexpr size_t kHeader = 64;  // the alignment of tensors
  static void release(void* data) {
    if (!data) return;
    Header header;
    std::memcpy(&header, static_cast<char*>(data) - sizeof header, sizeof header);
    counts().add_host(-static_cast<int64_t>(header.counted), false);
    auto* base = static_cast<char*>(data) - (header.large ? kPage : kHeader);
    if (header.large) munmap(base, header.bytes + kPage);
    else c10::free_cpu(base);
  }
};

} // namespace

void count_host_memory() {
  c10::SetCPUAllocator(new CountedHostAllocator(), 255);
}

// ---------------------------------------------------------------------------------------------- ledger
void Ledger::add(Key key, int64_t bytes, int place, size_t allocated, size_t reserved) {
  std::lock_guard<std::mutex> lock(mutex);
  change(key, bytes);
  record(bytes, allocated, reserved);
  raise_peak(place);
}

void Ledger::drop(Key key, int64_t bytes, size_t allocated, size_t reserved) {
  std::lock_guard<std::mutex> lock(mutex);
  settle();
  change(key, -bytes);
  record(-bytes, allocated, reserved);
}

void Ledger::relabel(Key from, Key to, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  settle();
  change(from, -bytes);
  change(to, bytes);
}

void Ledger::change(Key key, int64_t bytes) {
  auto& held = now_.by_key[key];
  held.bytes += bytes;
  held.count += bytes < 0 ? -1 : 1;
}

void Ledger::record(int64_t bytes, size_t allocated, size_t reserved) {
  now_.total += bytes;
  now_.allocated = static_cast<int64_t>(allocated);
  now_.reserved = static_cast<int64_t>(reserved);
  timeline.push_back({now_.total, phase});
}

void Ledger::raise_peak(int place) {
  auto& peak = peaks[static_cast<size_t>(phase)];
  peak.allocated = std::max(peak.allocated, now_.allocated);
  peak.reserved = std::max(peak.reserved, now_.reserved);
  if (now_.total <= peak.total) return;
  peak.total = now_.total;
  peak.place = place;
  risen_[static_cast<size_t>(phase)] = true;
}

void Ledger::settle() {
  for (size_t i = 0; i < kPhases; i++) {
    if (std::exchange(risen_[i], false)) peaks[i].by_key = now_.by_key;
  }
}

void Ledger::enter(int next, int place) {
  std::lock_guard<std::mutex> lock(mutex);
  settle();
  phase = next;
  raise_peak(place);
}

} // namespace accel_rehearse
