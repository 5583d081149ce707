// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The model of a caching allocator, over addresses that nobody commits.
#pragma once

#include "runtime.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace accel_sim {

inline size_t rounded(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Addresses whose pages read as zero and are committed when they are written. munmap gives them back.
inline char* reserve_addresses(size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(
      data != MAP_FAILED, "this machine gives the simulated device no ", bytes,
      " bytes of addresses: check `ulimit -v` and vm.overcommit_memory");
  madvise(data, bytes, MADV_NOHUGEPAGE);
  return static_cast<char*>(data);
}

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
  size_t reserved = 0, allocated = 0, retries = 0;

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

} // namespace accel_sim
