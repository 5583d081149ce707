// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Dry mode: the model of the caching allocator, memory that is not committed, and the count of host memory.
#include "dry.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>
#include <c10/util/thread_name.h>
#include <sys/mman.h>

#include <cstring>

namespace accel_sim {

namespace {

// CUDACachingAllocator.cpp of torch 2.13
constexpr size_t kMinBlock = 512;
constexpr size_t kSmallSize = 1 << 20;       // larger requests are served by the pool of large pieces
constexpr size_t kSmallSegment = 2 << 20;
constexpr size_t kLargeSegment = 20 << 20;
constexpr size_t kMinLargeRequest = 10 << 20;  // from here on a request has a segment of its own
constexpr size_t kRoundLarge = 2 << 20;

constexpr size_t kPage = 4096;
constexpr size_t kCleared = 64 << 10;  // pieces of up to so many bytes are cleared; larger ones give back their pages

// Segments take their addresses here, and return them: a process has 2^47.
struct Addresses {
  std::mutex mutex;
  char* next = nullptr;
  char* end = nullptr;
  std::multimap<size_t, char*> free;

  char* take(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    const auto found = free.find(bytes);
    if (found != free.end()) {
      auto* data = found->second;
      free.erase(found);
      return data;
    }
    if (!next || bytes > static_cast<size_t>(end - next)) {
      const auto size = std::max<size_t>(1ull << 40, bytes);
      next = reserve_addresses(size);
      end = next + size;
    }
    return std::exchange(next, next + bytes);
  }
  void give_back(char* data, size_t bytes) {
    forget_pages(data, bytes);
    std::lock_guard<std::mutex> lock(mutex);
    free.emplace(bytes, data);
  }
};
Addresses& addresses() {
  return singleton<Addresses>();
}

// Results that are not computed read as zero, whatever was there before.
void clear(Piece& piece) {
  if (piece.size <= kCleared) {
    std::memset(piece.data, 0, piece.size);
    return;
  }
  auto* end = piece.data + piece.size;
  auto* first = reinterpret_cast<char*>(rounded(reinterpret_cast<size_t>(piece.data), kPage));
  auto* last = reinterpret_cast<char*>(reinterpret_cast<size_t>(end) / kPage * kPage);
  std::memset(piece.data, 0, static_cast<size_t>(first - piece.data));
  std::memset(last, 0, static_cast<size_t>(end - last));
  forget_pages(first, static_cast<size_t>(last - first));
}

// Cuts a piece; what is behind it becomes a piece of its own.
Piece* cut(Piece* piece, size_t size) {
  auto* rest = new Piece{piece->data + size, piece->size - size, piece->stream, piece->small};
  rest->before = piece;
  rest->after = piece->after;
  if (rest->after) rest->after->before = rest;
  piece->after = rest;
  piece->size = size;
  return rest;
}

} // namespace

char* reserve_addresses(size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(
      data != MAP_FAILED, "this machine gives a rehearsal no ", bytes,
      " bytes of addresses: check `ulimit -v` and vm.overcommit_memory");
  madvise(data, bytes, MADV_NOHUGEPAGE);
  return static_cast<char*>(data);
}

void release_addresses(char* data, size_t bytes) {
  munmap(data, bytes);
}

void forget_pages(char* data, size_t bytes) {
  const auto first = rounded(reinterpret_cast<size_t>(data), kPage), last = (reinterpret_cast<size_t>(data) + bytes) / kPage * kPage;
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

Piece* CachingModel::take(size_t bytes, int64_t stream, size_t limit) {
  const size_t size = rounded(std::max(bytes + dry().pad, kMinBlock), kMinBlock);
  const bool small = size <= kSmallSize;
  auto* piece = find(size, stream, small, limit);
  if (!piece) return nullptr;
  const size_t rest = piece->size - size;
  if (small || dry().arena ? rest >= kMinBlock : rest > kSmallSize) pool(small).insert(cut(piece, size));
  piece->used = true;
  clear(*piece);
  allocated += piece->size;
  return piece;
}

// A piece that is large enough, out of its pool.
Piece* CachingModel::find(size_t size, int64_t stream, bool small, size_t limit) {
  auto& mine = pool(small);
  Piece key{nullptr, size, stream, small};
  auto at = mine.lower_bound(&key);
  if (at == mine.end() || (*at)->stream != stream) {
    if (!dry().arena) return new_segment(size, stream, small, limit);
    if (size > limit) return nullptr;
    at = mine.insert(new_arena(stream, small)).first;
  }
  auto* piece = *at;
  if (dry().arena && !map_pages(piece, size, limit)) {
    retries++;
    unmap_free_pages();
    if (!map_pages(piece, size, limit)) return nullptr;
  }
  mine.erase(piece);
  return piece;
}

Piece* CachingModel::new_segment(size_t size, int64_t stream, bool small, size_t limit) {
  const size_t segment = small ? kSmallSegment : size < kMinLargeRequest ? kLargeSegment : rounded(size, kRoundLarge);
  if (reserved + segment > limit) {
    retries++;
    empty_cache();
    if (reserved + segment > limit) return nullptr;
  }
  reserved += segment;
  segments++;
  return new Piece{addresses().take(segment), segment, stream, small};
}

// Another one of the same stream is made when no range of addresses is long enough.
Piece* CachingModel::new_arena(int64_t stream, bool small) {
  const auto bytes = rounded(config().capacity, kLargeSegment);
  auto* first = new Piece{addresses().take(bytes), bytes, stream, small};
  const auto page = small ? kSmallSegment : kLargeSegment;
  arenas_[first->data] = {first, std::vector<bool>(bytes / page + 1), page};
  return first;
}

bool CachingModel::map_pages(Piece* piece, size_t size, size_t limit) {
  auto& arena = std::prev(arenas_.upper_bound(piece->data))->second;
  const auto offset = static_cast<size_t>(piece->data - arena.first->data);
  const size_t begin = offset / arena.page, end = rounded(offset + size, arena.page) / arena.page;
  size_t needed = 0;
  for (auto page = begin; page < end; page++) needed += arena.mapped[page] ? 0 : arena.page;
  if (reserved + needed > limit) return false;
  for (auto page = begin; page < end; page++) arena.mapped[page] = true;
  reserved += needed;
  return true;
}

void CachingModel::unmap_free_pages() {
  for (auto& [key, arena] : arenas_) {
    std::vector<bool> used(arena.mapped.size());
    for (auto* piece = arena.first; piece; piece = piece->after) {
      const auto offset = static_cast<size_t>(piece->data - arena.first->data);
      if (!piece->used) continue;
      for (auto page = offset / arena.page; page * arena.page < offset + piece->size; page++) used[page] = true;
    }
    for (size_t page = 0; page < used.size(); page++) {
      if (arena.mapped[page] && !used[page]) reserved -= arena.page;
    }
    arena.mapped = std::move(used);
  }
}

void CachingModel::give_back(Piece* piece) {
  auto& mine = pool(piece->small);
  allocated -= piece->size;
  piece->used = false;
  if (piece->size > kCleared) forget_pages(piece->data, piece->size);
  // The earlier of two pieces stays: an arena knows its first.
  if (auto* before = piece->before; before && !before->used) {
    mine.erase(before);
    before->size += piece->size;
    before->after = piece->after;
    if (before->after) before->after->before = before;
    delete std::exchange(piece, before);
  }
  if (auto* after = piece->after; after && !after->used) {
    mine.erase(after);
    piece->size += after->size;
    piece->after = after->after;
    if (piece->after) piece->after->before = piece;
    delete after;
  }
  mine.insert(piece);
}

void CachingModel::empty_cache() {
  if (dry().arena) return unmap_free_pages();
  for (auto* mine : {&small_, &large_}) {
    for (auto at = mine->begin(); at != mine->end();) {
      auto* piece = *at;
      if (piece->before || piece->after) {
        ++at;
        continue;
      }
      at = mine->erase(at);
      reserved -= piece->size;
      segments--;
      addresses().give_back(piece->data, piece->size);
      delete piece;
    }
  }
}

void HostCount::add(int64_t bytes, bool is_pinned) {
  std::lock_guard<std::mutex> lock(mutex);
  auto& current = is_pinned ? pinned : now;
  auto& highest = is_pinned ? pinned_peak : peak;
  current += bytes;
  highest = std::max(highest, current);
}

namespace {

// What stands for the device's own memory: that of a kernel, and of gloo, which moves what the device's collectives do.
bool is_of_device() {
  static thread_local const bool gloo = c10::getThreadName() == "pt_gloo_runloop";
  return gloo || in_device_work();
}

// Counts the host's memory, and does not commit that of large tensors. A header stands before the memory: what frees
// it has its address only.
class CountedHostAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (!bytes) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    const bool large = bytes >= kLarge;
    const auto before = large ? kPage : kHeader;
    auto* base = static_cast<char*>(large ? reserve_addresses(bytes + before) : c10::alloc_cpu(bytes + before));
    if (!large) std::memset(base + before, 0, bytes);  // for results that are not computed
    const Header header{bytes, is_of_device() ? 0 : bytes, large};
    std::memcpy(base + before - sizeof header, &header, sizeof header);
    host_count().add(static_cast<int64_t>(header.counted), false);
    return {base + before, base + before, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  struct Header {
    size_t bytes, counted;
    bool large;
  };
  static constexpr size_t kLarge = 256 << 10;
  static constexpr size_t kHeader = 64;  // the alignment of tensors
  static void release(void* data) {
    if (!data) return;
    Header header;
    std::memcpy(&header, static_cast<char*>(data) - sizeof header, sizeof header);
    host_count().add(-static_cast<int64_t>(header.counted), false);
    auto* base = static_cast<char*>(data) - (header.large ? kPage : kHeader);
    header.large ? release_addresses(base, header.bytes + kPage) : c10::free_cpu(base);
  }
};

} // namespace

void enable_host_count() {
  c10::SetCPUAllocator(new CountedHostAllocator(), 255);
}

// ---------------------------------------------------------------------------------------------- ledger
void Ledger::add(Key key, int64_t bytes, int place, size_t allocated, size_t reserved) {
  std::lock_guard<std::mutex> lock(mutex);
  change(key, bytes);
  record(bytes, allocated, reserved);
  raise_peak(place);
}

void Ledger::drop(Key key, int64_t bytes, size_t allocated, size_t reserved) {
  std::lock_guard<std::mutex> lock(mutex);
  settle();
  change(key, -bytes);
  record(-bytes, allocated, reserved);
}

void Ledger::relabel(Key from, Key to, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  settle();
  change(from, -bytes);
  change(to, bytes);
}

void Ledger::change(Key key, int64_t bytes) {
  auto& held = now_.by_key[key];
  held.bytes += bytes;
  held.count += bytes < 0 ? -1 : 1;
}

void Ledger::record(int64_t bytes, size_t allocated, size_t reserved) {
  now_.total += bytes;
  now_.allocated = static_cast<int64_t>(allocated);
  now_.reserved = static_cast<int64_t>(reserved);
  timeline.push_back({now_.total, phase});
}

void Ledger::raise_peak(int place) {
  auto& peak = peaks[static_cast<size_t>(phase)];
  peak.allocated = std::max(peak.allocated, now_.allocated);
  peak.reserved = std::max(peak.reserved, now_.reserved);
  if (now_.total <= peak.total) return;
  peak.total = now_.total;
  peak.place = place;
  risen_[static_cast<size_t>(phase)] = true;
}

void Ledger::settle() {
  for (size_t i = 0; i < kPhases; i++) {
    if (std::exchange(risen_[i], false)) peaks[i].by_key = now_.by_key;
  }
}

void Ledger::enter(int next, int place) {
  std::lock_guard<std::mutex> lock(mutex);
  settle();
  phase = next;
  raise_peak(place);
}

void Ledger::reset_timeline() {
  std::lock_guard<std::mutex> lock(mutex);
  timeline.clear();
}

} // namespace accel_sim
