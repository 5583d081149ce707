// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Dry mode, for `accel rehearse`: memory is counted and not committed, kernels on large tensors give shapes only.
#pragma once

#include "runtime.h"

#include <array>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <unordered_map>

namespace accel_sim {

inline size_t rounded(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

struct Dry {
  bool on = false;
  bool modelled = false;           // the allocator is modelled, in place of a count of bytes
  size_t device_limit = 64 << 10;  // device tensors of up to so many bytes are computed
  size_t host_limit = 4 << 20;     // the same for host tensors
  size_t reserve = 0;              // bytes of a device that the program cannot have
  size_t pad = 0;                  // bytes that the allocator adds to each request
  bool arena = false;              // one growing range of addresses in place of segments
};
inline Dry& dry() {
  return singleton<Dry>();
}

// ------------------------------------------------------------------------------------- allocator model
// A range of addresses of the device; its neighbours in the same segment are linked.
struct Piece {
  char* data;
  size_t size;
  int64_t stream;
  bool small, used = false;
  Piece *before = nullptr, *after = nullptr;
};

// CUDA's caching allocator, of which those of npu, mlu, sdaa and xpu are copies, over addresses that nobody commits. As an arena it
// is CUDA's with expandable segments; hpu's pool is one, too.
class CachingModel {
 public:
  // nullptr: out of memory.
  Piece* take(size_t bytes, int64_t stream, size_t limit);
  void give_back(Piece* piece);
  void empty_cache();
  size_t reserved = 0, allocated = 0, segments = 0, retries = 0;

 private:
  struct Less {
    bool operator()(const Piece* a, const Piece* b) const {
      return std::tie(a->stream, a->size, a->data) < std::tie(b->stream, b->size, b->data);
    }
  };
  using Pool = std::set<Piece*, Less>;
  // The pages of an arena, which belongs to one stream.
  struct Arena {
    Piece* first = nullptr;
    std::vector<bool> mapped;
    size_t page;
  };
  Pool& pool(bool small) { return small ? small_ : large_; }
  Piece* find(size_t size, int64_t stream, bool small, size_t limit);
  Piece* new_segment(size_t size, int64_t stream, bool small, size_t limit);
  Piece* new_arena(int64_t stream, bool small);
  bool map_pages(Piece* piece, size_t size, size_t limit);
  void unmap_free_pages();
  Pool small_, large_;
  std::map<char*, Arena> arenas_;  // by their first addresses
};

// Addresses whose pages read as zero and are committed when they are written.
char* reserve_addresses(size_t bytes);
void release_addresses(char* data, size_t bytes);
void forget_pages(char* data, size_t bytes);

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
  struct Event {
    int64_t total;
    int phase;
  };
  void add(Key key, int64_t bytes, int place, size_t allocated, size_t reserved);
  void drop(Key key, int64_t bytes, size_t allocated, size_t reserved);
  void relabel(Key from, Key to, int64_t bytes);
  void enter(int phase, int place);  // what is held now is the phase's first peak
  void reset_timeline();

  std::mutex mutex;
  std::array<Snapshot, kPhases> peaks;
  std::vector<Event> timeline;
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

// Sets the kind of the memory of a storage; false: it is not the device's.
bool label(const c10::StorageImpl& storage, int kind);

// The place that allocates now, as a number; its site, the same place in any layer of a stack.
struct Allocating {
  int place, site;
};
Allocating allocating();

// --------------------------------------------------------------------------------------- host, transfers
struct HostCount {
  std::mutex mutex;
  int64_t now = 0, peak = 0, pinned = 0, pinned_peak = 0;
  void add(int64_t bytes, bool is_pinned);
};
inline HostCount& host_count() {
  return singleton<HostCount>();
}

// Operators that were computed on large tensors because they have no meta kernel, and why.
struct Computed {
  std::mutex mutex;
  std::map<std::string, std::pair<int64_t, std::string>> by_name;
};
inline Computed& computed() {
  return singleton<Computed>();
}

void enable_host_count();   // host allocations
void enable_dry_kernels();  // wraps the CPU's kernels

// ------------------------------------------------------------------------------------------ operators
inline size_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<size_t>(tensor.numel() * tensor.itemsize()) : 0;
}
// Whether an operator's arguments, or the result of a pointwise one, are too large to compute with.
// scattered: many pieces of a large tensor are large, too. Not on the host, where they may be the program's data.
bool is_large(const c10::OperatorHandle& op, const Stack& stack, size_t limit, bool scattered = false);
// Runs the operator's meta kernel and makes results of its shapes on the device, or on the host. False: it has none.
bool run_shapes(const c10::OperatorHandle& op, Stack* stack, c10::Device device);
// The device of an operator's results, if it has simulated tensors or makes some.
std::optional<c10::Device> dry_device(const c10::OperatorHandle& op, const Stack& stack);

} // namespace accel_sim
