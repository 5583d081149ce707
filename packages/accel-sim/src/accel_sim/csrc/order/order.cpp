// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "order/order.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>

namespace accel_sim {

void VectorClock::join(const VectorClock& other) {
  if (ticks_.size() < other.ticks_.size()) ticks_.resize(other.ticks_.size());
  for (size_t i = 0; i < other.ticks_.size(); i++) ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
}

void VectorClock::reach(const Epoch& epoch) {
  if (ticks_.size() <= epoch.line) ticks_.resize(epoch.line + 1);
  ticks_[epoch.line] = std::max(ticks_[epoch.line], epoch.tick);
}

Order::Line& Order::line(const c10::Stream& stream) {
  const auto [found, is_new] = lines_.try_emplace({stream.device_index(), stream.id()}, Line{names_.size()});
  if (is_new) names_.push_back("stream " + std::to_string(stream.id()) + " of " + stream.device().str());
  return found->second;
}

Epoch Order::now(const c10::Stream& stream) {
  const auto& mine = line(stream);
  return {mine.number, mine.tick};
}

VectorClock& Order::seen_by(const c10::Stream& stream) {
  auto& mine = line(stream);
  mine.seen.join(host_);
  return mine.seen;
}

void Order::queue(const c10::Stream& stream) {
  auto& mine = line(stream);
  mine.seen.join(host_);
  mine.seen.reach({mine.number, ++mine.tick});
}

void Order::host_waits(c10::DeviceIndex device) {
  for (const auto& [key, line] : lines_) {
    if (key.first == device) host_.join(line.seen);
  }
}

Order& order() {
  static auto* instance = new Order();
  return *instance;
}

namespace {

const char* const kCopy = "aten::copy_";

// Whether a device reads or writes the host memory directly: page-locked, and copied as one piece. Anything else goes
// through memory of the driver's before the call returns.
bool uses_dma(const at::Tensor& host, const at::Tensor& device) {
  return is_pinned(host.data_ptr()) && host.is_contiguous() && host.sizes() == device.sizes();
}

// Keeps the order: first of the observers.
class OrderObserver final : public Observer {
 public:
  void before_work(const Work& work) override {
    std::lock_guard<std::mutex> lock(order().mutex);
    const auto copying = copy_info(work);
    if (copying && copying->partner) order().seen_by(copying->stream).join(order().seen_by(*copying->partner));
    order().queue(copying ? copying->stream : work.stream);
  }
  void after_work(const Work& work, const torch::jit::Stack&) override {
    std::lock_guard<std::mutex> lock(order().mutex);
    const auto copying = copy_info(work);
    if (copying && copying->partner) order().seen_by(*copying->partner).join(order().seen_by(copying->stream));
    if (host_waits_for(work)) order().host_waits(order().seen_by(copying ? copying->stream : work.stream));
  }
  void before_collective(const Collective& collective) override {
    std::lock_guard<std::mutex> lock(order().mutex);
    order().seen_by(collective.stream).join(order().seen_by(collective.caller));
    order().queue(collective.stream);
    order().name(collective.stream, collective.group + " of " + collective.stream.device().str());
  }
  void before_record(const void* event, const c10::Stream& stream) override {
    std::lock_guard<std::mutex> lock(order().mutex);
    order().record(event, stream);
  }
  void before_wait(const void* event, const c10::Stream& stream) override {
    std::lock_guard<std::mutex> lock(order().mutex);
    order().seen_by(stream).join(order().of_event(event));
  }
  void event_destroyed(const void* event) override {
    std::lock_guard<std::mutex> lock(order().mutex);
    order().forget(event);
  }
  void before_host_wait(const c10::Stream* stream, const void* event) override {
    std::lock_guard<std::mutex> lock(order().mutex);
    if (stream) order().host_waits(order().seen_by(*stream));
    if (event) order().host_waits(order().of_event(event));
  }
  void before_device_wait(c10::DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(order().mutex);
    order().host_waits(device);
  }
};

bool g_order_enabled = false;

OrderObserver& keeper() {
  static auto* instance = [] {
    auto* made = new OrderObserver();
    Observer::add(made);
    return made;
  }();
  return *instance;
}

} // namespace

bool order_enabled() {
  return g_order_enabled;
}

std::optional<CopyInfo> copy_info(const Work& work) {
  if (work.op.operator_name().name != kCopy) return std::nullopt;
  const auto& to = work.arguments[0].toTensor();
  const auto& from = work.arguments[1].toTensor();
  const bool non_blocking = work.arguments[2].toBool();
  CopyInfo copying{!is_simulated(from), !is_simulated(to), work.stream};
  if (!copying.from_host) copying.stream = current_stream(from.device().index());
  if (!copying.from_host && !copying.to_host) {
    if (from.device() != to.device()) copying.partner = work.stream;
    return copying;
  }
  const auto& host = copying.from_host ? from : to;
  copying.asynchronous = non_blocking && uses_dma(host, copying.from_host ? to : from);
  // A copy from ordinary memory is read at once; one into ordinary memory ends before the call returns.
  copying.host_waits = !copying.asynchronous && !(non_blocking && copying.from_host);
  return copying;
}

bool host_waits_for(const Work& work) {
  if (const auto copying = copy_info(work)) return copying->host_waits;
  return work.op.hasTag(at::Tag::data_dependent_output) || work.op.hasTag(at::Tag::dynamic_output_shape);
}

void enable_order() {
  g_order_enabled = true;
  keeper().watch(true);
}

void disable_order() {
  g_order_enabled = false;
  keeper().watch(false);
}

} // namespace accel_sim
