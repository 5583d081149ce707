// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The dry run: memory is counted and not committed, kernels on large tensors give shapes only.
#pragma once

#include "hooks.h"

#include <torch/csrc/utils/pybind.h>

#include <array>
#include <map>
#include <mutex>
#include <tuple>
#include <unordered_map>

namespace accel_rehearse {

using namespace accel_sim;

// What the simulator offers, and up to how many bytes tensors of the device and of the host are computed.
struct Setup {
  Hooks* simulator = nullptr;
  size_t device_limit = 0, host_limit = 0;
};
inline Setup& setup() {
  return singleton<Setup>();
}

// ---------------------------------------------------------------------------------------------- ledger
// What is allocated, by the place of the program that did it and by kind of memory.
class Ledger {
 public:
  static constexpr size_t kPhases = 8;
  using Key = uint64_t;  // site << 8 | kind
  struct Held {
    int64_t bytes = 0, count = 0;
  };
  struct Snapshot {
    int64_t total = 0, allocated = 0, reserved = 0;
    int place = 0;  // of the allocation at the peak
    std::unordered_map<Key, Held> by_key;
  };
  void add(Key key, int64_t bytes, int place, size_t allocated, size_t reserved);
  void drop(Key key, int64_t bytes, size_t allocated, size_t reserved);
  void relabel(Key from, Key to, int64_t bytes);
  void enter(int phase, int place);  // what is held now is the phase's first peak

  std::mutex mutex;
  std::array<Snapshot, kPhases> peaks;
  std::vector<std::pair<int64_t, int>> timeline;  // bytes and phase after each event
  int phase = 0;
  void settle();  // copies what is held at the peaks that were reached since the last call

 private:
  void change(Key key, int64_t bytes);  // one piece of memory more, or less
  void record(int64_t bytes, size_t allocated, size_t reserved);
  void raise_peak(int place);  // of the phase, to what is held now
  Snapshot now_;
  std::array<bool, kPhases> risen_{};
};
inline Ledger& ledger() {
  return singleton<Ledger>();
}

// The place that allocates now, as a number; its site, the same place in any layer of a stack.
struct Allocating {
  int place, site;
};
Allocating allocating();

// ------------------------------------------------------------------------------------------------ counts
// Calls and bytes of collectives, and operators that were computed on large tensors for want of a meta kernel.
struct Counts {
  using Call = std::tuple<std::string, std::string, int, int, std::string>;  // operation, group, size, phase, dtype
  std::mutex mutex;
  std::array<int64_t, 2> host{}, host_peak{};  // pageable, page-locked
  std::map<std::string, int64_t> computed;
  std::map<Call, std::pair<int64_t, int64_t>> collectives;
  void add_host(int64_t bytes, bool pinned) {
    std::lock_guard<std::mutex> lock(mutex);
    host[pinned] += bytes;
    host_peak[pinned] = std::max(host_peak[pinned], host[pinned]);
  }
};
inline Counts& counts() {
  return singleton<Counts>();
}
void count_host_memory();

// The Python side.
void bind_places(py::module_& m);
void bind_groups(py::module_& m);

} // namespace accel_rehearse
