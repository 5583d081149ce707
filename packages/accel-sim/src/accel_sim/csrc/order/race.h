// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Unordered accesses to the same memory, found by vector clocks: an access remembers when it was, and a later one
// that has not seen that moment, when one of the two writes, is a race.
#pragma once

#include "order/order.h"
#include "order/span.h"
#include "python/call_site.h"

namespace accel_sim {

// One tensor that a piece of work, or the host, reads or writes.
struct Access {
  Span span;
  Epoch epoch;
  bool write;
  CallSitePtr site;
  std::string argument;
  bool kept = false;  // a collective, which keeps the memory until it is done
};

// The accesses to one piece of memory that a later one can still race with.
class Shadow {
 public:
  // The one that the new access is unordered with, if any; clock: what the new one has seen.
  const Access* conflict(const Access& access, const VectorClock& clock) const;
  void add(Access access, const VectorClock& clock, const VectorClock& host);
  std::vector<Access> take() { return std::move(accesses_); }

 private:
  std::vector<Access> accesses_;
};

// Memory that was freed while work on it may be under way, as torch's caching allocator hands it out again: to the
// stream that it was allocated on, without waiting for any other.
class FreedMemory {
 public:
  void add(const Block& block, std::vector<Access> accesses);
  // An access, by a stream that is neither recorded nor waited for, to memory that this allocation may get. Each is
  // reported once.
  std::optional<Access> in_use(size_t bytes, const c10::Stream& stream);
  // The earlier accesses to the memory that this allocation gets, which later ones must be ordered after.
  std::vector<Access> hand_out(size_t bytes, const c10::Stream& stream);
  void clear(c10::DeviceIndex device);

 private:
  struct Piece {
    size_t bytes;
    std::vector<Access> accesses;
  };
  using Pieces = std::vector<Piece>;
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, Pieces> pieces_;
};

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
bool host_may_race();  // whether a device has ever touched page-locked memory
void watch_host_operators();

} // namespace accel_sim
