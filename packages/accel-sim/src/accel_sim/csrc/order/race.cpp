// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "graphs/capture.h"
#include "order/race.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <atomic>
#include <unordered_set>

namespace accel_sim {

constexpr size_t kMost = 4096;  // accesses to different parts of one piece of memory; older ones are forgotten

const Access* Shadow::conflict(const Access& access, const VectorClock& clock) const {
  for (const auto& other : accesses_) {
    if ((access.write || other.write) && !clock.knows(other.epoch) && other.span.meets(access.span)) return &other;
  }
  return nullptr;
}

// Drops what nothing can race with any more: what the host has seen is ordered before all that it starts, and what
// is ordered before the new access and covered by it is found through the new one.
void Shadow::add(Access access, const VectorClock& clock, const VectorClock& host) {
  const auto settled = [&](const Access& other) {
    return host.knows(other.epoch) ||
        ((access.write || !other.write) && clock.knows(other.epoch) && access.span.covers(other.span));
  };
  accesses_.erase(std::remove_if(accesses_.begin(), accesses_.end(), settled), accesses_.end());
  if (accesses_.size() >= kMost) accesses_.erase(accesses_.begin());
  accesses_.push_back(std::move(access));
}

namespace {

using torch::jit::Stack;

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
bool reads_metadata_only(const std::string& name) {
  static const std::unordered_set<std::string> names = {
      "aten::_unsafe_view", "aten::resize_", "aten::_resize_output_", "aten::is_set_to", "aten::_fused_sdp_choice"};
  return names.count(name) != 0;
}

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
      if (auto use = freed_.in_use(allocation.bytes, allocation.stream)) {
        auto other = order().name_of(use->epoch.line);
        found = Conflict{std::move(*use), std::move(other)};
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

  template <typename Visit>
  static void each_tensor(const c10::IValue& value, const Visit& visit) {
    if (value.isTensor()) {
      visit(value.toTensor());
    } else if (value.isTensorList()) {
      for (const auto& item : value.toTensorVector()) visit(item);
    } else if (value.isOptionalTensorList()) {
      for (const auto& item : value.toOptionalTensorVector()) {
        if (item) visit(*item);
      }
    }
  }
  template <typename Visit>
  static void each_argument(const c10::OperatorHandle& op, const Stack& values, const Visit& visit) {
    const auto& arguments = op.schema().arguments();
    for (size_t i = 0; i < arguments.size(); i++) {
      each_tensor(values[i], [&](const at::Tensor& tensor) { visit(tensor, arguments[i]); });
    }
  }
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
    if (reads_metadata_only(work.op.operator_name().name)) return;
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
      const auto& clock = order().seen_by(stream);
      found = conflict(memory->id, access, clock);
      place = order().name_of(access.epoch.line);
      if (!found && keep != Keep::No) shadows_[memory->id].add(access, clock, order().seen_by_host());
    }
    if (found) raise(*found, access, place, false);
  }

  std::unordered_map<uint64_t, Shadow> shadows_;
  FreedMemory freed_;
};

RaceDetector& race_detector() {
  static auto* instance = new RaceDetector();
  return *instance;
}

} // namespace

void enable_race_detection() {
  Observer::add(&race_detector());
  race_detector().watch(true);
  watch_host_operators();
}

bool host_may_race() {
  return g_host_may_race.load(std::memory_order_relaxed);
}

void host_touches(const std::string& name, const char* argument, const at::Tensor& tensor, bool write) {
  if (host_may_race() && !is_simulated(tensor) && location_of(tensor)) race_detector().host(call_site(name), argument, tensor, write);
}

} // namespace accel_sim
