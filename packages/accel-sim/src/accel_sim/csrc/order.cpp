// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The order of work, and deferred mode: copies and collectives that are carried out as late as the order allows.
#include "graphs.h"
#include "order.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

namespace accel_sim {

namespace {

// Whether a device reads or writes the host memory directly: page-locked, and copied as one piece. Anything else goes
// through memory of the driver's before the call returns.
bool uses_dma(const at::Tensor& host, const at::Tensor& device) {
  return is_pinned(host.data_ptr()) && host.is_contiguous() && host.sizes() == device.sizes();
}

} // namespace

std::optional<CopyInfo> copy_info(const Work& work) {
  if (work.op.operator_name().name != "aten::copy_") return std::nullopt;
  const auto& to = work.arguments[0].toTensor();
  const auto& from = work.arguments[1].toTensor();
  const bool non_blocking = work.arguments[2].toBool();
  CopyInfo copying{!is_simulated(from), !is_simulated(to), work.stream};
  if (!copying.from_host) copying.stream = current_stream(from.device().index());
  if (!copying.from_host && !copying.to_host) {
    if (from.device() != to.device()) copying.partner = work.stream;
    return copying;
  }
  const auto& host = copying.from_host ? from : to;
  copying.asynchronous = non_blocking && uses_dma(host, copying.from_host ? to : from);
  // A copy from ordinary memory is read at once; one into ordinary memory ends before the call returns.
  copying.host_waits = !copying.asynchronous && !(non_blocking && copying.from_host);
  return copying;
}

bool host_waits_for(const Work& work) {
  if (const auto copying = copy_info(work)) return copying->host_waits;
  return work.op.hasTag(at::Tag::data_dependent_output) || work.op.hasTag(at::Tag::dynamic_output_shape);
}

namespace {

using SharedMemory = std::shared_ptr<c10::DataPtr>;

struct Task {
  Epoch epoch;
  VectorClock seen;                     // what is ordered before it
  std::function<void()> run;      // what happens on the device
  std::function<void()> deliver;  // for copies to the host: when the host may see the numbers
  uint64_t block = 0, pinned = 0; // the memory that a copy uses
  bool ran = false;
};
using Tasks = std::vector<std::shared_ptr<Task>>;

VectorClock seen_by(const c10::Stream& stream) {
  std::lock_guard<std::mutex> lock(order().mutex);
  return order().seen_by(stream);
}

void call(std::function<void()>& function) {
  const auto once = std::exchange(function, nullptr);
  at::AutoDispatchBelowADInplaceOrView below;
  DeviceWorkGuard inside;
  once();
}

// In the order in which it was queued, which is one that every piece of work allows.
class Queue {
 public:
  void add(std::shared_ptr<Task> task, const c10::Stream& stream) {
    {
      std::lock_guard<std::mutex> lock(order().mutex);
      task->epoch = order().now(stream);
      task->seen = order().seen_by(stream);
    }
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
  }

  void carry_out(const VectorClock& seen, bool for_host) {
    Tasks done;  // destroyed after the lock is released: a tensor may need the GIL
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    for (size_t i = 0; i < tasks_.size(); i++) {
      const auto task = tasks_[i];
      const bool known = seen.knows(task->epoch);
      if (!known && !config().orders_data) continue;
      run(*task);
      if (!known) continue;
      if (for_host && task->deliver) call(task->deliver);
    }
    const auto pending = [](const auto& task) { return !task->ran || task->deliver; };
    const auto first_done = std::stable_partition(tasks_.begin(), tasks_.end(), pending);
    done.assign(first_done, tasks_.end());
    tasks_.erase(first_done, tasks_.end());
  }

  void carry_out_all() {
    Tasks done;
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    for (size_t i = 0; i < tasks_.size(); i++) {
      run(*tasks_[i]);
      if (tasks_[i]->deliver) call(tasks_[i]->deliver);
    }
    done.swap(tasks_);
  }

  // Whether work is pending on a stream that is neither the block's own nor recorded.
  bool in_use(const Block& block) {
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    std::lock_guard<std::mutex> order_lock(order().mutex);
    return std::any_of(tasks_.begin(), tasks_.end(), [&](const auto& task) {
      const auto line = task->epoch.line;
      return task->block == block.id && !task->ran && !order().recorded(block, line) &&
          order().line_of(stream_of(block.device, block.stream)) != line;
    });
  }

 private:
  void run(Task& task) {
    if (std::exchange(task.ran, true)) return;
    // What an earlier copy brings to the host memory that this one reads, in an order that the device keeps.
    for (const auto& other : tasks_) {
      if (other.get() == &task) break;
      if (task.pinned && other->pinned == task.pinned && task.seen.knows(other->epoch) && other->deliver) {
        run(*other);
        call(other->deliver);
      }
    }
    call(task.run);
  }

  std::recursive_mutex mutex_;
  Tasks tasks_;
};

Queue& queue() {
  return singleton<Queue>();
}

// Device memory that late copies use. When it is freed too early the allocator gives it to the next tensor, as
// torch's does, and the copy changes that tensor.
class DeferredMemory final : public Observer {
 public:
  DeferredMemory() { add(this); }

  void before_work(const Work& work) override {
    const auto copying = copy_info(work);
    if (is_recorded_only() || (copying && copying->asynchronous)) return;
    run_deferred(copying ? copying->stream : work.stream);
  }
  void after_work(const Work& work, const Stack&) override {
    if (host_waits_for(work)) run_deferred_for_host();
  }
  void before_host_wait(const c10::Stream*, const void*) override { run_deferred_for_host(); }
  void before_device_wait(c10::DeviceIndex) override { run_deferred_for_host(); }

  void before_allocation(Allocation& allocation) override {
    if (allocation.memory.get() || !allocation.bytes) return;
    std::lock_guard<std::mutex> lock(mutex_);
    auto& pieces = freed_[key_of(allocation.stream)];
    const auto is_free = [](const Piece& piece) { return piece.memory.use_count() == 1; };
    pieces.erase(std::remove_if(pieces.begin(), pieces.end(), is_free), pieces.end());
    for (auto piece = pieces.begin(); piece != pieces.end(); ++piece) {
      if (piece->bytes < allocation.bytes) continue;
      allocation.memory = owner(piece->memory);
      pieces.erase(piece);
      return;
    }
  }
  void before_free(Block& block) override {
    const auto memory = give_up(block);
    if (!memory || !queue().in_use(block)) return;
    std::lock_guard<std::mutex> lock(mutex_);
    freed_[{block.device, block.stream}].push_back({block.bytes, memory});
  }

  SharedMemory share(Block& block) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& known = shared_[block.id];
    auto memory = known.lock();
    if (!memory) {
      memory = std::make_shared<c10::DataPtr>(std::move(block.host));
      block.host = owner(memory);  // so that it is freed with the block when nobody observes that
      known = memory;
    }
    return memory;
  }

 private:
  struct Piece {
    size_t bytes;
    SharedMemory memory;
  };
  SharedMemory give_up(const Block& block) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = shared_.find(block.id);
    if (found == shared_.end()) return nullptr;
    auto memory = found->second.lock();
    shared_.erase(found);
    return memory;
  }
  static c10::DataPtr owner(const SharedMemory& memory) {
    auto* held = new SharedMemory(memory);
    return {memory->get(), held, [](void* context) { delete static_cast<SharedMemory*>(context); },
            c10::Device(c10::DeviceType::CPU)};
  }

  std::mutex mutex_;
  std::unordered_map<uint64_t, std::weak_ptr<c10::DataPtr>> shared_;  // by block
  std::map<StreamKey, std::vector<Piece>> freed_;
};

DeferredMemory& deferred_memory() {
  return singleton<DeferredMemory>();
}

// A host view of device memory that outlives the tensor, and does not keep the tensor's memory from being reused.
at::Tensor view_of(const at::Tensor& tensor, Block& block) {
  const auto memory = deferred_memory().share(block);
  return at::from_blob(
      tensor.data_ptr(), tensor.sizes(), tensor.strides(), [memory](void*) {}, at::TensorOptions().dtype(tensor.dtype()));
}

} // namespace

void enable_deferral() {
  config().deferred = true;
  deferred_memory().watch(true);
}

void disable_deferral() {
  queue().carry_out_all();
  config().deferred = false;
  deferred_memory().watch(false);
}

void defer(const c10::Stream& stream, std::function<void()> run) {
  auto task = std::make_shared<Task>();
  task->run = std::move(run);
  queue().add(std::move(task), stream);
}

bool defer_copy(const at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  const auto& device = is_simulated(self) ? self : source;
  const Stack arguments{self, source, non_blocking};
  const auto copying = copy_info(Work{op, arguments, current_stream(device.device().index())});
  auto* block = block_of(*device.storage().unsafeGetStorageImpl());
  if (!copying->asynchronous || !block) return false;
  const auto host = is_simulated(self) ? source : self;
  const auto there = view_of(device, *block);
  auto task = std::make_shared<Task>();
  task->block = block->id;
  task->pinned = pinned_range(host.data_ptr())->id;
  if (copying->from_host) {
    task->run = [there, host] { at::Tensor(there).copy_(host); };
  } else {
    auto* waiting = task.get();
    task->run = [waiting, there, host] {
      const auto numbers = there.clone();
      waiting->deliver = [numbers, host] { at::Tensor(host).copy_(numbers); };
    };
    task->deliver = [] {};
  }
  queue().add(std::move(task), copying->stream);
  return true;
}

void run_deferred(const c10::Stream& stream) {
  queue().carry_out(seen_by(stream), false);
}

void run_deferred_for_host() {
  VectorClock seen;
  {
    std::lock_guard<std::mutex> lock(order().mutex);
    seen = order().seen_by_host();
  }
  queue().carry_out(seen, true);
}

} // namespace accel_sim
