// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Where a program calls something: the operator, the lines of Python, the node of a backward pass.
#pragma once

#include <memory>
#include <string>
#include <vector>

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

} // namespace accel_sim
