// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Race mode: unordered accesses to the same memory are errors that name both sides.
#pragma once

#include "runtime.h"

#include <memory>

namespace accel_sim {

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
