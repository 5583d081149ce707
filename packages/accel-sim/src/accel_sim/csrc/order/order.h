// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// What is ordered before what: vector clocks over the streams of all devices and the inner streams of collectives.
#pragma once

#include "runtime/observer.h"

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
  void join(const VectorClock& other);
  void reach(const Epoch& epoch);

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

  Epoch now(const c10::Stream& stream);        // of the work that was queued last
  VectorClock& seen_by(const c10::Stream& stream);   // what is ordered before the next work there
  const VectorClock& seen_by_host() const { return host_; }
  void queue(const c10::Stream& stream);       // one more piece of work, after all that the host has seen
  void host_waits(const VectorClock& clock) { host_.join(clock); }
  void host_waits(c10::DeviceIndex device);
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
  Line& line(const c10::Stream& stream);
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, Line> lines_;
  std::vector<std::string> names_;
  std::unordered_map<const void*, VectorClock> events_;
  VectorClock host_;
};
Order& order();
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

} // namespace accel_sim
