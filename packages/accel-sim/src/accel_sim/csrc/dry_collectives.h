// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Dry mode's groups of one rank.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

namespace accel_sim {

struct CollectiveCounts {
  using Call = std::tuple<std::string, std::string, int, int, std::string>;  // operation, group, size, phase, dtype
  struct Count {
    int64_t calls = 0, bytes = 0;
  };
  std::mutex mutex;
  std::map<Call, Count> by_call;
};
CollectiveCounts& collective_counts();

// What this rank broadcast and sent, by channel and number; and what others did in their rehearsals.
struct Tape {
  std::mutex mutex;
  std::map<std::string, std::string> recorded, replayed;
  std::map<std::string, int> next;
  std::atomic<int64_t> missing{0};
};
Tape& tape();

c10::intrusive_ptr<c10d::Backend> make_dry_backend(int rank, int size, std::string name);

void bind_dry(py::module_& m);  // all of dry mode

} // namespace accel_sim
