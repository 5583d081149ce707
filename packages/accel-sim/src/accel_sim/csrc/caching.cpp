// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The model of the caching allocator, and addresses whose memory is not committed.
#include "caching.h"

#include <cstring>
#include <mutex>

namespace accel_sim {

namespace {

// CUDACachingAllocator.cpp of torch 2.13
constexpr size_t kMinBlock = 512;
constexpr size_t kSmallSize = 1 << 20;       // larger requests are served by the pool of large pieces
constexpr size_t kSmallSegment = 2 << 20;
constexpr size_t kLargeSegment = 20 << 20;
constexpr size_t kMinLargeRequest = 10 << 20;  // from here on a request has its own segment
constexpr size_t kRoundLarge = 2 << 20;

constexpr size_t kPage = 4096;
constexpr size_t kCleared = 64 << 10;  // pieces of up to so many bytes are cleared; larger ones give back their pages

void forget_pages(char* data, size_t bytes) {
  const auto first = rounded(reinterpret_cast<size_t>(data), kPage), last = (reinterpret_cast<size_t>(data) + bytes) / kPage * kPage;
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

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

// Cuts a piece; what is behind it becomes its own piece.
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

Piece* CachingModel::take(size_t bytes, int64_t stream, size_t limit) {
  const size_t size = rounded(std::max(bytes + config().padding, kMinBlock), kMinBlock);
  const bool small = size <= kSmallSize;
  auto* piece = find(size, stream, small, limit);
  if (!piece) return nullptr;
  const size_t rest = piece->size - size;
  if (small || config().arena ? rest >= kMinBlock : rest > kSmallSize) pool(small).insert(cut(piece, size));
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
    if (!config().arena) return new_segment(size, stream, small, limit);
    if (size > limit) return nullptr;
    at = mine.insert(new_arena(stream, small)).first;
  }
  auto* piece = *at;
  if (config().arena && !map_pages(piece, size, limit)) {
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
  if (config().arena) return unmap_free_pages();
  for (auto* mine : {&small_, &large_}) {
    for (auto at = mine->begin(); at != mine->end();) {
      auto* piece = *at;
      if (piece->before || piece->after) {
        ++at;
        continue;
      }
      at = mine->erase(at);
      reserved -= piece->size;
      addresses().give_back(piece->data, piece->size);
      delete piece;
    }
  }
}

} // namespace accel_sim
