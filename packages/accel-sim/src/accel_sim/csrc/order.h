// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// What is ordered before what: vector clocks over the streams of all devices and the inner streams of collectives.
#pragma once

#include "runtime.h"

#include <functional>
#include <map>
#include <mutex>
#include <unordered_map>

namespace accel_sim {

// A point on a timeline; each stream is one.
struct Epoch {
  size_t line = 0;
  uint64_t tick = 0;
};

// For each timeline, the last point that is ordered before something.
class VectorClock {
 public:
  bool knows(const Epoch& epoch) const { return epoch.line < ticks_.size() && ticks_[epoch.line] >= epoch.tick; }
  void join(const VectorClock& other) {
    if (ticks_.size() < other.ticks_.size()) ticks_.resize(other.ticks_.size());
    for (size_t i = 0; i < other.ticks_.size(); i++) ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
  }
  void reach(const Epoch& epoch) {
    if (ticks_.size() <= epoch.line) ticks_.resize(epoch.line + 1);
    ticks_[epoch.line] = std::max(ticks_[epoch.line], epoch.tick);
  }

 private:
  std::vector<uint64_t> ticks_;
};
// Kept up to date by an observer that is called before all others. Callers hold the mutex.
//
// All host threads count as one: they synchronize by means that are not observed (a queue, a lock), so separate
// timelines would give false alarms.
class Order {
 public:
  std::mutex mutex;

  // of the work that was queued last
  Epoch now(const c10::Stream& stream) {
    const auto& mine = line(stream);
    return {mine.number, mine.tick};
  }
  // what is ordered before the next work there
  VectorClock& seen_by(const c10::Stream& stream) {
    auto& mine = line(stream);
    mine.seen.join(host_);
    return mine.seen;
  }
  const VectorClock& seen_by_host() const { return host_; }
  // one more piece of work, after all that the host has seen
  void queue(const c10::Stream& stream) {
    auto& mine = line(stream);
    mine.seen.join(host_);
    mine.seen.reach({mine.number, ++mine.tick});
  }
  void host_waits(const VectorClock& clock) { host_.join(clock); }
  void host_waits(c10::DeviceIndex device) {
    for (const auto& [key, line] : lines_) {
      if (key.first == device) host_.join(line.seen);
    }
  }
  const VectorClock& of_event(const void* event) { return events_[event]; }
  void record(const void* event, const c10::Stream& stream) { events_[event] = seen_by(stream); }
  void forget(const void* event) { events_.erase(event); }
  size_t line_of(const c10::Stream& stream) { return line(stream).number; }
  std::string name_of(size_t line) const { return names_.at(line); }
  void name(const c10::Stream& stream, std::string name) { names_.at(line(stream).number) = std::move(name); }

 private:
  struct Line {
    size_t number;
    uint64_t tick = 0;
    VectorClock seen;
  };
  Line& line(const c10::Stream& stream) {
    const auto [found, is_new] = lines_.try_emplace({stream.device_index(), stream.id()}, Line{names_.size()});
    if (is_new) names_.push_back("stream " + std::to_string(stream.id()) + " of " + stream.device().str());
    return found->second;
  }
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, Line> lines_;
  std::vector<std::string> names_;
  std::unordered_map<const void*, VectorClock> events_;
  VectorClock host_;
};Order& order();
bool order_enabled();

// How torch's own backends carry out a copy.
struct CopyInfo {
  bool from_host = false, to_host = false;
  c10::Stream stream;                  // that it is queued on: the source's
  std::optional<c10::Stream> partner;  // of the other device, which waits before and after
  bool asynchronous = false;           // host memory is used after the call has returned
  bool host_waits = false;
};
std::optional<CopyInfo> copy_info(const Work& work);  // none where it is no copy
bool host_waits_for(const Work& work);                  // the operator's result depends on the numbers

// Call before adding the observers that read the order.
void enable_order();
void disable_order();  // what was ordered stays known

// ---------------------------------------------------------------------------------- deferred mode
// Copies and collectives that do not wait for the host, carried out as late as the order of work allows.
inline bool deferring() {
  return config().deferred;
}
void enable_deferral();
void disable_deferral();  // carries out what is queued

// A copy between a device and page-locked memory whose caller does not wait: true when it was queued.
bool defer_copy(const at::Tensor& self, const at::Tensor& source, bool non_blocking);
// Something that runs on a stream, queued as its last piece of work.
void defer(const c10::Stream& stream, std::function<void()> run);
// Carries out what is ordered before the next work on a stream.
void run_deferred(const c10::Stream& stream);
// Carries out what the host has waited for, and shows it the results.
void run_deferred_for_host();

} // namespace accel_sim
