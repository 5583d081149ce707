// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Unordered accesses to the same memory, found by vector clocks: an access remembers when it was, and a later one
// that has not seen that moment, when one of the two writes, is a race.
#include "aten.h"
#include "graphs.h"
#include "order.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <unordered_set>

namespace accel_sim {

namespace {

constexpr int64_t kMostPieces = 4 << 20;  // beyond, two spans that interleave are taken to meet
constexpr size_t kMost = 4096;  // accesses to different parts of one piece of memory; older ones are forgotten
constexpr size_t kSmall = 1 << 20;  // torch's allocator has one pool for blocks up to this size and one for larger

// The bytes of a storage that a tensor covers, exactly: two halves of a matrix do not overlap.
class Span {
 public:
  Span(int64_t low, int64_t high) : low_(low), high_(high), run_(high - low) {}
  // The bytes of a tensor; low: where its first element lies.
  Span(const at::Tensor& tensor, int64_t low) : low_(low), high_(low), run_(0) {
    if (!tensor.numel()) return;
    run_ = static_cast<int64_t>(tensor.itemsize());
    std::vector<std::pair<int64_t, int64_t>> dimensions;  // stride in bytes, size
    for (int64_t i = 0; i < tensor.dim(); i++) {
      if (tensor.size(i) > 1 && tensor.stride(i)) dimensions.emplace_back(tensor.stride(i) * run_, tensor.size(i));
    }
    std::sort(dimensions.begin(), dimensions.end());
    for (const auto& [stride, size] : dimensions) {
      high_ += (size - 1) * stride;
      if (steps_.empty() && stride <= run_) {
        run_ += (size - 1) * stride;  // rows that touch or, in an overlapping view, overlap
      } else {
        steps_.emplace_back(size, stride);
      }
    }
    high_ += static_cast<int64_t>(tensor.itemsize());
  }

  bool meets(const Span& other) const {
    if (low_ >= other.high_ || other.low_ >= high_) return false;
    if (in_one_piece() && other.in_one_piece()) return true;
    for (const auto* span : {this, &other}) {
      int64_t count = 1;
      for (const auto& step : span->steps_) count *= step.first;
      if (count > kMostPieces) return true;
    }
    const auto mine = pieces(), theirs = other.pieces();
    for (size_t i = 0, k = 0; i < mine.size() && k < theirs.size();) {
      if (mine[i].first < theirs[k].second && theirs[k].first < mine[i].second) return true;
      mine[i].second <= theirs[k].second ? i++ : k++;
    }
    return false;
  }
  bool covers(const Span& other) const {
    if (in_one_piece()) return low_ <= other.low_ && other.high_ <= high_;
    return low_ == other.low_ && run_ == other.run_ && steps_ == other.steps_;
  }

 private:
  bool in_one_piece() const { return steps_.empty(); }
  std::vector<std::pair<int64_t, int64_t>> pieces() const {
    std::vector<std::pair<int64_t, int64_t>> found{{low_, low_ + run_}};
    for (const auto& [count, stride] : steps_) {
      const auto before = found.size();
      for (int64_t i = 1; i < count; i++) {
        for (size_t k = 0; k < before; k++) {
          found.emplace_back(found[k].first + i * stride, found[k].second + i * stride);
        }
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  int64_t low_, high_;
  int64_t run_;                                     // bytes in a row
  std::vector<std::pair<int64_t, int64_t>> steps_;  // how often and how far apart the rows repeat, inner first
};

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
  const Access* conflict(const Access& access, const VectorClock& clock) const {
    for (const auto& other : accesses_) {
      if ((access.write || other.write) && !clock.knows(other.epoch) && other.span.meets(access.span)) return &other;
    }
    return nullptr;
  }
  // Drops what nothing can race with any more: what the host has seen is ordered before all that it starts, and what
  // is ordered before the new access and covered by it is found through the new one.
  void add(Access access, const VectorClock& clock, const VectorClock& host) {
    const auto settled = [&](const Access& other) {
      return host.knows(other.epoch) ||
          ((access.write || !other.write) && clock.knows(other.epoch) && access.span.covers(other.span));
    };
    accesses_.erase(std::remove_if(accesses_.begin(), accesses_.end(), settled), accesses_.end());
    if (accesses_.size() >= kMost) accesses_.erase(accesses_.begin());
    accesses_.push_back(std::move(access));
  }
  std::vector<Access> take() { return std::move(accesses_); }

 private:
  std::vector<Access> accesses_;
};

bool fits(size_t wanted, size_t there) {
  return wanted <= there && (wanted <= kSmall) == (there <= kSmall);
}

// Memory that was freed while work on it may be under way, as torch's caching allocator hands it out again: to the
// stream that it was allocated on, without waiting for any other.
class FreedMemory {
 public:
  void add(const Block& block, std::vector<Access> accesses) {
    // The allocator itself waits for recorded streams, and a collective keeps its tensors.
    const auto gone = [&](const Access& access) {
      return access.kept || order().recorded(block, access.epoch.line) || order().seen_by_host().knows(access.epoch);
    };
    accesses.erase(std::remove_if(accesses.begin(), accesses.end(), gone), accesses.end());
    if (!accesses.empty()) pieces_[{block.device, block.stream}].push_back({block.bytes, std::move(accesses)});
  }
  // An access, by a stream that is neither recorded nor waited for, to memory that this allocation may get. Each is
  // reported once.
  std::optional<Access> in_use(size_t bytes, const c10::Stream& stream) {
    const auto& seen = order().seen_by(stream);
    for (auto& piece : pieces_[key_of(stream)]) {
      if (!fits(bytes, piece.bytes)) continue;
      const auto under_way = [&](const Access& access) { return !seen.knows(access.epoch); };
      const auto found = std::find_if(piece.accesses.begin(), piece.accesses.end(), under_way);
      if (found == piece.accesses.end()) continue;
      auto access = std::move(*found);
      piece.accesses.erase(found);
      return access;
    }
    return std::nullopt;
  }
  // The earlier accesses to the memory that this allocation gets, which later ones must be ordered after.
  std::vector<Access> hand_out(size_t bytes, const c10::Stream& stream) {
    auto& pieces = pieces_[key_of(stream)];
    const auto done = [&](const Piece& piece) {
      return std::all_of(piece.accesses.begin(), piece.accesses.end(), [](const Access& access) {
        return order().seen_by_host().knows(access.epoch);
      });
    };
    pieces.erase(std::remove_if(pieces.begin(), pieces.end(), done), pieces.end());
    auto best = pieces.end();
    for (auto piece = pieces.begin(); piece != pieces.end(); ++piece) {
      if (fits(bytes, piece->bytes) && (best == pieces.end() || piece->bytes < best->bytes)) best = piece;
    }
    if (best == pieces.end()) return {};
    auto found = std::move(best->accesses);
    pieces.erase(best);
    for (auto& access : found) {
      access.span = Span(0, static_cast<int64_t>(bytes));
      access.write = true;
      access.argument += "` of a tensor that was freed, whose memory this is, `";
    }
    return found;
  }
  void clear(c10::DeviceIndex device) {
    for (auto& [key, pieces] : pieces_) {
      if (key.first == device) pieces.clear();
    }
  }

 private:
  struct Piece {
    size_t bytes;
    std::vector<Access> accesses;
  };
  using Pieces = std::vector<Piece>;
  std::map<StreamKey, Pieces> pieces_;
};

struct Location {
  uint64_t id;
  int64_t offset;  // of the tensor's first element
};

std::optional<Location> location_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || !tensor.numel()) return std::nullopt;
  const auto* first = static_cast<const char*>(tensor.const_data_ptr());
  if (is_simulated(tensor)) {
    const auto* block = block_of(*tensor.storage().unsafeGetStorageImpl());
    if (!block) return std::nullopt;
    return Location{block->id, first - static_cast<const char*>(tensor.storage().data())};
  }
  if (!tensor.device().is_cpu()) return std::nullopt;
  const auto pinned = pinned_range(first);
  if (!pinned) return std::nullopt;
  return Location{pinned->id, first - pinned->base};
}

struct Conflict {
  Access before;
  std::string place_before;
};

std::string action(const Access& access) {
  return access.site->name + (access.write ? " writes " : " reads ") + "`" + access.argument + "`";
}

[[noreturn]] void raise(const Conflict& conflict, const Access& now, const std::string& place, bool host) {
  const auto kind = host ? RaceKind::WithHost : conflict.before.kept ? RaceKind::WithCollective : RaceKind::Unordered;
  raise_race(
      kind, {action(now), place, now.site}, {action(conflict.before), conflict.place_before, conflict.before.site});
}

// Operators that read a tensor's metadata only and are not marked as views by their schema.
const std::unordered_set<std::string> kMetadataOnly = {
    "aten::_unsafe_view", "aten::resize_", "aten::_resize_output_", "aten::is_set_to", "aten::_fused_sdp_choice"};

template <typename Visit>
void each_argument(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> values, const Visit& visit) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); i++) {
    each_tensor(values[i], [&](const at::Tensor& tensor) { visit(tensor, arguments[i]); });
  }
}

// Whether a device has ever touched page-locked memory.
std::atomic<bool> g_host_may_race{false};
thread_local CallSitePtr t_site;  // of the operator under way

class RaceDetector final : public Observer {
 public:
  void before_work(const Work& work) override {
    t_site = nullptr;
    if (is_recorded_only()) return;  // its replay is what touches memory
    t_site = call_site(c10::toString(work.op.operator_name()));
    touch_arguments(work, /*done=*/false);
  }

  // What was refused has not happened, so accesses are kept only now.
  void after_work(const Work& work, const Stack& results) override {
    if (!t_site) return;
    touch_arguments(work, /*done=*/true);
    const auto& returns = work.op.schema().returns();
    for (size_t i = 0; i < results.size(); i++) {
      if (returns[i].alias_info()) continue;
      each_tensor(results[i], [&](const at::Tensor& tensor) {
        if (is_simulated(tensor) && !among(work, tensor)) touch(work.stream, tensor, "result", true, Keep::Yes);
      });
    }
  }

  void before_collective(const Collective& collective) override {
    t_site = call_site(collective.name);
    for (const auto& tensor : collective.reads) touch(collective.stream, tensor, "input", false, Keep::WithMemory);
    for (const auto& tensor : collective.writes) touch(collective.stream, tensor, "output", true, Keep::WithMemory);
  }

  void before_allocation(Allocation& allocation) override {
    std::optional<Conflict> found;
    std::string place;
    {
      std::lock_guard<std::mutex> lock(order().mutex);
      place = order().name_of(order().line_of(allocation.stream));
      if (auto use = config().orders_data ? std::nullopt : freed_.in_use(allocation.bytes, allocation.stream)) {
        found = Conflict{*use, order().name_of(use->epoch.line)};
      } else {
        for (auto& access : freed_.hand_out(allocation.bytes, allocation.stream)) {
          shadows_[allocation.id].add(std::move(access), VectorClock(), order().seen_by_host());
        }
        return;
      }
    }
    const auto site = in_device_work() && t_site ? t_site : call_site("an allocation");
    raise_race(
        RaceKind::HandedOut, {site->name + " gets the memory", place, site},
        {action(found->before), found->place_before, found->before.site});
  }

  void before_free(Block& block) override {
    std::lock_guard<std::mutex> lock(order().mutex);
    const auto found = shadows_.find(block.id);
    if (found == shadows_.end()) return;
    freed_.add(block, found->second.take());
    shadows_.erase(found);
  }
  void before_host_free(uint64_t id) override {
    std::lock_guard<std::mutex> lock(order().mutex);
    shadows_.erase(id);
  }
  void cache_emptied(c10::DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(order().mutex);
    freed_.clear(device);
  }

  // The host is ordered before all that it starts later, so its accesses are checked and not kept.
  void host(const CallSitePtr& site, const char* argument, const at::Tensor& tensor, bool write) {
    const auto memory = location_of(tensor);
    if (!memory) return;
    const Access access{Span(tensor, memory->offset), {}, write, site, argument};
    std::optional<Conflict> found;
    {
      std::lock_guard<std::mutex> lock(order().mutex);
      found = conflict(memory->id, access, order().seen_by_host());
    }
    if (found) raise(*found, access, "the host", true);
  }

 private:
  static bool moves_on_stream(const CopyInfo& copying) { return copying.asynchronous || copying.host_waits; }

  static bool among(const Work& work, const at::Tensor& result) {
    bool found = false;
    each_argument(work.op, work.arguments, [&](const at::Tensor& tensor, const c10::Argument&) {
      found |= tensor.defined() && tensor.has_storage() && tensor.is_alias_of(result);
    });
    return found;
  }

  std::optional<Conflict> conflict(uint64_t id, const Access& access, const VectorClock& clock) {
    const auto shadow = shadows_.find(id);
    if (shadow == shadows_.end()) return std::nullopt;
    const auto* other = shadow->second.conflict(access, clock);
    if (!other) return std::nullopt;
    return Conflict{*other, order().name_of(other->epoch.line)};
  }

  enum class Keep { No, Yes, WithMemory };

  void touch_arguments(const Work& work, bool done) {
    if (kMetadataOnly.count(work.op.operator_name().name)) return;
    const auto copying = copy_info(work);
    const auto stream = copying ? copying->stream : work.stream;
    each_argument(work.op, work.arguments, [&](const at::Tensor& tensor, const c10::Argument& argument) {
      const bool write = argument.alias_info() && argument.alias_info()->isWrite();
      if (argument.alias_info() && !write) return;  // a view
      if (!copying || is_simulated(tensor) || moves_on_stream(*copying)) {
        touch(stream, tensor, argument.name(), write, done ? Keep::Yes : Keep::No);
      } else if (!done) {
        host_touches(t_site->name, argument.name().c_str(), tensor, write);
      }
    });
  }

  void touch(
      const c10::Stream& stream, const at::Tensor& tensor, const std::string& argument, bool write, Keep keep) {
    const auto memory = location_of(tensor);
    if (!memory) return;
    if (!is_simulated(tensor)) g_host_may_race = true;
    std::optional<Conflict> found;
    std::string place;
    Access access{Span(tensor, memory->offset), {}, write, t_site, argument, keep == Keep::WithMemory};
    {
      std::lock_guard<std::mutex> lock(order().mutex);
      access.epoch = order().now(stream);
      auto& clock = order().seen_by(stream);
      const bool waits = config().orders_data && is_simulated(tensor);  // the later work does, by itself
      while ((found = conflict(memory->id, access, clock)) && waits) clock.reach(found->before.epoch);
      place = order().name_of(access.epoch.line);
      if (!found && keep != Keep::No) shadows_[memory->id].add(access, clock, order().seen_by_host());
    }
    if (found) raise(*found, access, place, false);
  }

  std::unordered_map<uint64_t, Shadow> shadows_;
  FreedMemory freed_;
};

RaceDetector& race_detector() {
  return singleton<RaceDetector>();
}

// Checks the tensors of an operator of the host, of which the page-locked ones may be under way to or from a device.
bool check_host_tensors(const c10::OperatorHandle& op, Stack* stack) {
  if (!g_host_may_race || in_device_work()) return false;
  const auto name = c10::toString(op.operator_name());
  each_argument(op, arguments_of(op, *stack), [&](const at::Tensor& tensor, const c10::Argument& argument) {
    const bool write = argument.alias_info() && argument.alias_info()->isWrite();
    if (argument.alias_info() && !write) return;  // a view
    if (tensor.defined()) host_touches(name, argument.name().c_str(), tensor, write);
  });
  return false;
}

} // namespace

void enable_race_detection() {
  Observer::add(&race_detector());
  race_detector().watch(true);
  wrap_host_kernels(&check_host_tensors, [](const c10::OperatorHandle&) { return false; });
}

void host_touches(const std::string& name, const char* argument, const at::Tensor& tensor, bool write) {
  if (!g_host_may_race || is_simulated(tensor) || !location_of(tensor)) return;
  race_detector().host(call_site(name), argument, tensor, write);
}

} // namespace accel_sim
