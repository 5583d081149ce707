// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// What is ordered before what: vector clocks over the streams of all devices and the inner streams of collectives.
#pragma once

#include "runtime.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
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

// How torch's own backends carry out a copy.
struct CopyInfo {
  bool from_host = false, to_host = false;
  c10::Stream stream;                  // that it is queued on: the source's
  std::optional<c10::Stream> partner;  // of the other device, which waits before and after
  bool asynchronous = false;           // host memory is used after the call has returned
  bool host_waits = false;
};
std::optional<CopyInfo> copy_info(const Work& work);  // none where it is not a copy
bool host_waits_for(const Work& work);                  // the operator's result depends on the numbers

// All host threads count as one: they synchronize by means that are not observed (a queue, a lock), so separate
// timelines would give false alarms.
class Order final : public Observer {
 public:
  Order() { add(this); }  // before the observers that read the order

  // Callers of these hold the mutex.
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
  void host_waits(const VectorClock& clock) { host_.join(clock); }
  size_t line_of(const c10::Stream& stream) { return line(stream).number; }
  std::string name_of(size_t line) const { return names_.at(line); }
  // Whether record_stream was called for the stream of a line.
  bool recorded(const Block& block, size_t line) {
    const auto is_that = [&](c10::StreamId id) { return line_of(stream_of(block.device, id)) == line; };
    return std::any_of(block.recorded.begin(), block.recorded.end(), is_that);
  }

  void before_work(const Work& work) override {
    std::lock_guard<std::mutex> lock(mutex);
    const auto copying = copy_info(work);
    if (copying && copying->partner) seen_by(copying->stream).join(seen_by(*copying->partner));
    queue(copying ? copying->stream : work.stream);
  }
  void after_work(const Work& work, const Stack&) override {
    std::lock_guard<std::mutex> lock(mutex);
    const auto copying = copy_info(work);
    if (copying && copying->partner) seen_by(*copying->partner).join(seen_by(copying->stream));
    if (host_waits_for(work)) host_waits(seen_by(copying ? copying->stream : work.stream));
  }
  void before_collective(const Collective& collective) override {
    std::lock_guard<std::mutex> lock(mutex);
    seen_by(collective.stream).join(seen_by(collective.caller));
    queue(collective.stream);
    names_.at(line_of(collective.stream)) = collective.group + " of " + collective.stream.device().str();
  }
  void before_record(const void* event, const c10::Stream& stream) override {
    std::lock_guard<std::mutex> lock(mutex);
    events_[event] = seen_by(stream);
  }
  void before_wait(const void* event, const c10::Stream& stream) override {
    std::lock_guard<std::mutex> lock(mutex);
    seen_by(stream).join(events_[event]);
  }
  void event_destroyed(const void* event) override {
    std::lock_guard<std::mutex> lock(mutex);
    events_.erase(event);
  }
  void before_host_wait(const c10::Stream* stream, const void* event) override {
    std::lock_guard<std::mutex> lock(mutex);
    if (stream) host_waits(seen_by(*stream));
    if (event) host_waits(events_[event]);
  }
  void before_device_wait(c10::DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(mutex);
    for (const auto& [key, line] : lines_) {
      if (key.first == device) host_.join(line.seen);
    }
  }

 private:
  struct Line {
    size_t number;
    uint64_t tick = 0;
    VectorClock seen;
  };
  Line& line(const c10::Stream& stream) {
    const auto [found, is_new] = lines_.try_emplace(key_of(stream), Line{names_.size()});
    if (is_new) names_.push_back("stream " + std::to_string(stream.id()) + " of " + stream.device().str());
    return found->second;
  }
  // one more piece of work, after all that the host has seen
  void queue(const c10::Stream& stream) {
    auto& mine = line(stream);
    mine.seen.join(host_);
    mine.seen.reach({mine.number, ++mine.tick});
  }
  std::map<StreamKey, Line> lines_;
  std::vector<std::string> names_;
  std::unordered_map<const void*, VectorClock> events_;
  VectorClock host_;
};
inline Order& order() {
  return singleton<Order>();
}

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

// -------------------------------------------------------------------------------------- race mode
// Unordered accesses to the same memory are errors that name both sides.
struct CallSite {
  std::string name;         // of the operator or collective
  std::vector<int> frames;  // numbers of interned lines, innermost first
  std::string node;         // of autograd, when it was run by a backward pass
  std::vector<int> forward; // where that node came from
};
using CallSitePtr = std::shared_ptr<const CallSite>;

// Takes the GIL: the caller must not hold a mutex of this library.
CallSitePtr call_site(std::string name);
// "train.py:12 in step, called at train.py:40 in main"; takes the GIL as well.
std::string text_of(const CallSite& site);
// Sets the files whose frames are left out: torch's, the simulation's.
void hide_frames(std::vector<std::string> prefixes);

// Both sides of a race. place: the stream, or the host.
struct RaceSide {
  std::string action, place;
  CallSitePtr site;
};
enum class RaceKind { Unordered, WithHost, WithCollective, HandedOut };
[[noreturn]] void raise_race(RaceKind kind, const RaceSide& now, const RaceSide& before);

void enable_race_detection();
// The host touches page-locked memory by an operator, or leaves to numpy what it does.
void host_touches(const std::string& name, const char* argument, const at::Tensor& tensor, bool write);

} // namespace accel_sim
