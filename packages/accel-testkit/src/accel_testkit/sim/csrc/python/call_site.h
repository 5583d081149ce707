// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Where in the program something is asked for: the operator, the lines of Python, the step of a backward pass.
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

// Takes the interpreter's lock for a moment: the caller holds none of ours.
CallSitePtr call_site(std::string name);
// "train.py:12 in step, called at train.py:40 in main"; takes the interpreter's lock as well.
std::string text_of(const CallSite& site);
// Files whose frames are nobody's own code: torch's, the simulation's.
void hide_frames(std::vector<std::string> prefixes);

} // namespace accel_sim
