// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Observers of what a process does with the device: the recorder of graphs, the race detector, deferred mode.
#pragma once

#include "runtime/runtime.h"

#include <ATen/core/stack.h>

#include <atomic>

namespace accel_sim {

// One operator, or a copy (as aten::copy_), on the stream that it is queued on.
struct Work {
  const c10::OperatorHandle& op;
  const torch::jit::Stack& arguments;  // as the caller gave them: device tensors
  c10::Stream stream;
};
// A request for device memory. memory: the host memory to use, if that is decided already.
struct Allocation {
  uint64_t id;
  size_t bytes;
  c10::Stream stream;
  c10::DataPtr& memory;
};
// A collective that was started on the caller's stream, and runs on a stream of its group.
struct Collective {
  std::string name, group;
  c10::Stream caller, stream;
  std::vector<at::Tensor> reads, writes;
};

// Each function is called on the thread that does the work; an exception from a `before` function prevents the work.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void before_work(const Work&) {}
  virtual void after_work(const Work&, const torch::jit::Stack& /*results*/) {}
  virtual void before_record(const void* /*event*/, const c10::Stream&) {}
  virtual void before_wait(const void* /*event*/, const c10::Stream&) {}
  virtual void event_destroyed(const void* /*event*/) {}
  // The host waits for, or queries, a stream or an event; neither: everything on the device.
  virtual void before_host_wait(const c10::Stream*, const void* /*event*/) {}
  virtual void before_device_wait(c10::DeviceIndex) {}  // after the call above
  virtual void before_collective(const Collective&) {}
  virtual void before_allocation(Allocation&) {}
  virtual void before_free(Block&) {}  // raises nothing
  virtual void before_host_free(uint64_t /*id of a page-locked range*/) {}
  virtual void cache_emptied(c10::DeviceIndex) {}

  static void add(Observer* observer) { all().push_back(observer); }  // at activation; never removed
  // An observer that does not watch is not called.
  void watch(bool on) {
    if (watching_.exchange(on) != on) count_ += on ? 1 : -1;
  }
  static bool any() { return count_.load(std::memory_order_relaxed) > 0; }
  template <typename Call>
  static void each(const Call& call) {
    if (!any()) return;
    for (auto* observer : all()) {
      if (observer->watching_) call(*observer);
    }
  }

 private:
  static std::vector<Observer*>& all() {
    static auto* observers = new std::vector<Observer*>();
    return *observers;
  }
  static inline std::atomic<int> count_{0};
  std::atomic<bool> watching_{false};
};

// Whether this thread carries out work of the device: what that does on the host is not the program's own access.
bool in_device_work();
class DeviceWorkGuard {
 public:
  DeviceWorkGuard();
  ~DeviceWorkGuard();
  DeviceWorkGuard(const DeviceWorkGuard&) = delete;
  DeviceWorkGuard& operator=(const DeviceWorkGuard&) = delete;
};

} // namespace accel_sim
