// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Current device, streams and events. Work is done when a call returns, so a stream is a number and an event a time.
#include "distributed/pending.h"
#include "graphs/capture.h"
#include "runtime/observer.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <chrono>

namespace accel_sim {

namespace {

constexpr int kDevices = 64;
thread_local c10::DeviceIndex t_device = 0;
thread_local std::array<c10::StreamId, kDevices> t_streams{};
std::array<std::atomic<bool>, kDevices> g_used{};
std::atomic<c10::StreamId> g_next_stream{1};

using Clock = std::chrono::steady_clock;

struct Event {
  c10::Stream stream;
  Clock::time_point time;
};

// The index of a device that has streams.
c10::DeviceIndex stream_device(c10::Device device) {
  const auto index = index_of(device);
  TORCH_CHECK(
      index >= 0 && index < config().count, "Device index value ", static_cast<int>(index),
      " is out of index range [0, ", config().count, ")");
  return index;
}

class SimGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return config().type; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {config().type, current_device()}; }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index() && device.index() < config().count) t_device = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(config().count); }

  c10::Stream getStream(c10::Device device) const override { return current_stream(stream_device(device)); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(stream_device(device), 0); }
  c10::Stream getNewStream(c10::Device device, int) const override {
    check_fork();
    return new_stream(stream_device(device));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream exchangeStream(c10::Stream next) const override {
    const auto index = stream_device(next.device());
    const auto before = current_stream(index);
    t_streams[static_cast<size_t>(index)] = next.id();
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(static_cast<intptr_t>(stream.id()));
  }
  bool queryStream(const c10::Stream& stream) const override {
    Observer::each([&](auto& observer) { observer.before_host_wait(&stream, nullptr); });
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Observer::each([&](auto& observer) { observer.before_host_wait(&stream, nullptr); });
    finish_collectives();
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override { synchronize_device(index); }
  bool isStreamCapturing(const c10::Stream& stream) const override { return is_capturing(stream); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    record_stream(data, stream);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new Event{stream, Clock::now()};
    Observer::each([&](auto& observer) { observer.before_record(*event, stream); });
    *static_cast<Event*>(*event) = Event{stream, Clock::now()};
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) Observer::each([&](auto& observer) { observer.before_wait(event, stream); });
  }
  bool queryEvent(void* event) const override {
    if (event) Observer::each([&](auto& observer) { observer.before_host_wait(nullptr, event); });
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (event) Observer::each([&](auto& observer) { observer.before_host_wait(nullptr, event); });
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    Observer::each([&](auto& observer) { observer.event_destroyed(event); });
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    return event_elapsed_ms(reinterpret_cast<int64_t>(start), reinterpret_cast<int64_t>(end));
  }

 private:
  static c10::Stream stream(c10::DeviceIndex index, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(config().type, index), id);
  }
};

} // namespace

double event_elapsed_ms(int64_t start, int64_t end) {
  TORCH_CHECK(start && end, "both events must be recorded before their elapsed time is asked for");
  const auto* from = reinterpret_cast<Event*>(start);
  const auto* to = reinterpret_cast<Event*>(end);
  return std::chrono::duration<double, std::milli>(to->time - from->time).count();
}

int64_t event_time_us(int64_t event) {
  TORCH_CHECK(event, "the event must be recorded before its time is asked for");
  const auto time = reinterpret_cast<Event*>(event)->time.time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

c10::DeviceIndex current_device() {
  return t_device;
}

void check_device(c10::DeviceIndex index) {
  if (index >= 0 && index < config().count) return;
  const auto given = static_cast<int>(index);
  if (config().type == c10::DeviceType::CUDA) {
    constexpr int32_t kInvalidDevice = 101;  // cudaErrorInvalidDevice
    throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, kInvalidDevice, "CUDA error: invalid device ordinal");
  }
  TORCH_CHECK(
      config().type != c10::DeviceType::XPU, "The device index is out of range. It must be in [0, ", config().count,
      "), but got ", given, ".");
  TORCH_CHECK(false, config().name, " error: invalid device ordinal ", given, ", there are ", config().count);
}

void set_current_device(c10::DeviceIndex index) {
  check_fork();
  check_device(index);
  t_device = index;
}

c10::DeviceIndex index_of(c10::Device device) {
  return device.has_index() ? device.index() : current_device();
}

bool was_used(c10::DeviceIndex index) {
  return index >= 0 && index < kDevices && g_used[static_cast<size_t>(index)];
}

void mark_used(c10::DeviceIndex index) {
  if (!g_used[static_cast<size_t>(index)].exchange(true)) poison_fork();
}

c10::Stream current_stream(c10::DeviceIndex index) {
  return c10::Stream(
      c10::Stream::UNSAFE, c10::Device(config().type, index), t_streams[static_cast<size_t>(index)]);
}

c10::Stream new_stream(c10::DeviceIndex index) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(config().type, index), g_next_stream++);
}

void synchronize_device(c10::DeviceIndex index) {
  check_fork();
  check_device(index);
  Observer::each([](auto& observer) { observer.before_host_wait(nullptr, nullptr); });
  Observer::each([&](auto& observer) { observer.before_device_wait(index); });
  finish_collectives();
}

void register_guard() {
  static auto* guard = new SimGuard();
  c10::impl::device_guard_impl_registry[static_cast<size_t>(config().type)].store(guard);
}

} // namespace accel_sim
