// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// A simulated accelerator: a PyTorch device whose memory is the host's. What the other files share.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/Stream.h>
#include <c10/util/FunctionRef.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace accel_sim {

// One device type a process, chosen by activate().
struct Config {
  c10::DeviceType type = c10::DeviceType::CPU;
  c10::DispatchKey key = c10::DispatchKey::Undefined;
  c10::DispatchKey autograd_key = c10::DispatchKey::Undefined;
  c10::DispatchKey autocast_key = c10::DispatchKey::Undefined;
  std::string name;
  int count = 1;
  size_t capacity = 0;  // bytes a device
  int generators = 0;   // default generators; 0: one a device
  bool strict = true;   // host and device tensors do not mix
  bool deferred = false;  // what does not wait for the host is late: deferred.h
};
Config& config();

std::string upper_name();  // as error texts have it

inline bool is_mine(const c10::Device& device) {
  return device.type() == config().type;
}
inline bool is_mine(const at::Tensor& tensor) {
  return tensor.defined() && is_mine(tensor.device());
}

// ------------------------------------------------------------------------------------------ memory
// The context of every device DataPtr: what it holds and whose it is.
struct Block {
  c10::DataPtr host;
  size_t bytes;
  c10::DeviceIndex device;
  uint64_t id;            // never used twice, unlike the address
  c10::StreamId stream;   // the stream it was allocated on
  std::vector<c10::StreamId> recorded;  // by record_stream, when somebody watches
};
c10::Allocator* allocator();
at::HostAllocator* pinned_allocator();
bool is_pinned(const void* pointer);
struct PinnedRange {
  const char* base;
  size_t bytes;
  uint64_t id;
};
std::optional<PinnedRange> pinned_range(const void* pointer);
void register_host(void* data, size_t bytes);  // memory that somebody else allocated and page-locks
void unregister_host(void* data);
Block* block_of(const c10::StorageImpl& storage);  // nullptr for an empty one
// Device memory of the given size that takes over host memory; accounted, raises when the device is full.
c10::DataPtr adopt(c10::DataPtr host, size_t bytes, c10::DeviceIndex device);
uint64_t next_block();  // the next block has this id or a later one
uint64_t new_id();
void register_memory();
void record_stream(const c10::DataPtr& data, const c10::Stream& stream);
// Changes the size of a device storage, keeping what fits.
void resize(const c10::Storage& storage, size_t bytes);

// ------------------------------------------------------------------------------------ device, streams
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index);
c10::DeviceIndex index_of(c10::Device device);  // the current one where it has no index
bool touched(c10::DeviceIndex index);
void touch(c10::DeviceIndex index);
c10::Stream current_stream(c10::DeviceIndex index);
c10::Stream new_stream(c10::DeviceIndex index);
void synchronize_device(c10::DeviceIndex index);
void register_guard();
void register_hooks();
double event_elapsed_ms(int64_t start, int64_t end);
void finish_collectives();  // waits for every collective under way

// ------------------------------------------------------------------------------------------- random
at::Generator new_generator(c10::DeviceIndex index);
const at::Generator& default_generator(c10::DeviceIndex index);
// The host generator that a generator of the device stands for.
at::Generator inner_generator(const at::Generator& generator);

// ------------------------------------------------------------------------------------------ aliases
// The host views of the device tensors of one call, and the way back.
class Aliases {
 public:
  at::Tensor to_host(const at::Tensor& device_tensor);
  // A result: the argument it was, a view of its storage, or new memory taken over by the device.
  at::Tensor to_device(const at::Tensor& host_tensor, c10::DeviceIndex device);
  // Sizes and storages that the call changed, carried back to the device tensors.
  void write_back();

 private:
  struct AliasedTensor {
    at::Tensor host, device;
  };
  struct AliasedStorage {
    c10::Storage host, device;
    void* data;
    size_t bytes;
  };
  c10::Storage& storage_for(const c10::Storage& device_storage);
  std::vector<AliasedTensor> tensors_;
  std::vector<AliasedStorage> storages_;
};
at::Tensor host_alias(const at::Tensor& device_tensor);
// A tensor of the same shape and flags on other memory.
at::Tensor with_metadata_of(const at::Tensor& source, c10::Storage storage, c10::DispatchKey key);

// ------------------------------------------------------------------------------------------- graphs
bool is_capturing(const c10::Stream& stream);
// Whether the operator that this thread is at is recorded and must leave everything outside the capture as it is.
bool is_only_recorded();
// Raises when the current stream of the device is being captured.
void refuse_in_capture(const std::string& what, c10::DeviceIndex device);
// Captured work runs on copies of the memory that was there before the capture; nothing outside a capture.
std::optional<c10::Storage> shadow_of(const c10::Storage& device_storage);

// ---------------------------------------------------------------------------------------- observers
// One operator, or a copy (as aten::copy_), on the stream that it is queued on.
struct Work {
  const c10::OperatorHandle& op;
  const torch::jit::Stack& arguments;  // as the caller gave them: device tensors
  c10::Stream stream;
};
// Device memory that is asked for, and the host memory that it is to be, if that is decided already.
struct Allocation {
  uint64_t id;
  size_t bytes;
  c10::Stream stream;
  c10::DataPtr& memory;
};
// A collective that was asked for on a stream, and runs on one of its group.
struct Collective {
  std::string name, group;
  c10::Stream caller, stream;
  std::vector<at::Tensor> reads, writes;
};
// Who follows what a process does with the device: the recorder of graphs, the detector of races. Called on the
// thread that does it; what a `before` raises keeps it from happening.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void before_work(const Work&) {}
  virtual void after_work(const Work&, const torch::jit::Stack& /*results*/) {}
  virtual void before_record(const void* /*event*/, const c10::Stream&) {}
  virtual void before_wait(const void* /*event*/, const c10::Stream&) {}
  virtual void event_destroyed(const void* /*event*/) {}
  // The host waits for, or asks after, a stream or an event; neither: everything on the device.
  virtual void before_host_wait(const c10::Stream*, const void* /*event*/) {}

  virtual void before_device_wait(c10::DeviceIndex) {}  // after the call above
  virtual void before_collective(const Collective&) {}
  virtual void before_allocation(Allocation&) {}
  virtual void before_free(Block&) {}  // raises nothing
  virtual void before_host_free(uint64_t /*id of a page-locked range*/) {}
  virtual void cache_emptied(c10::DeviceIndex) {}

  static void add(Observer* observer) { all().push_back(observer); }  // at activation, for ever
  // One that has nothing to do does not watch and costs nothing.
  void watch(bool on) {
    if (watching_.exchange(on) != on) count_ += on ? 1 : -1;
  }
  static bool any() { return count_.load(std::memory_order_relaxed) > 0; }
  template <typename Call>
  static void each(const Call& call) {
    if (!any()) return;
    for (auto* observer : all()) {
      if (observer->watching_) call(*observer);
    }
  }

 private:
  static std::vector<Observer*>& all() {
    static auto* observers = new std::vector<Observer*>();
    return *observers;
  }
  static inline std::atomic<int> count_{0};
  std::atomic<bool> watching_{false};
};
// While work is carried out, what its parts do on the host is no work of the host's.
bool inside_work();
class InsideWork {
 public:
  InsideWork();
  ~InsideWork();
};
// Runs one operator, which leaves its results on the stack, under the eyes of the observers.
void observed(
    const c10::OperatorHandle& op, torch::jit::Stack* stack,
    c10::function_ref<void(const c10::OperatorHandle&, torch::jit::Stack*)> run);

// ---------------------------------------------------------------------------------------- operators
// Runs one operator again, into the results that it once gave where they are defined; leaves those on the stack.
void run_into(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::vector<at::Tensor>& results);
// Puts another tensor in the place of each one in a value, in a fixed order.
template <typename Change>
void change_tensors(c10::IValue& value, const Change& change) {
  if (value.isTensor()) {
    value = change(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const auto& item : value.toTensorVector()) list.push_back(change(item));
    value = std::move(list);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& item : value.toOptionalTensorVector()) {
      list.push_back(item ? std::optional<at::Tensor>(change(*item)) : std::nullopt);
    }
    value = std::move(list);
  }
}
std::vector<at::Tensor> tensors_of(const torch::jit::Stack& values);
void run_copy(const c10::OperatorHandle& op, torch::jit::Stack* stack);  // aten::copy_
void register_fallback();
void register_kernels();
void register_autocast();
void register_composites();

} // namespace accel_sim
