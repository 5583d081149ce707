// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The device itself: its configuration, memory, streams and generators. Device memory is host memory, and work is done
// when the call that starts it returns.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace accel_sim {

using torch::jit::Stack;
struct Piece;  // caching.h

// The one object of its type. It is never destroyed: threads may use it until the process ends.
template <typename T>
T& singleton() {
  static auto* instance = new T();
  return *instance;
}

// ------------------------------------------------------------------------------------ configuration
// One device type a process, chosen by activate().
struct Config {
  c10::DeviceType type = c10::DeviceType::CPU;
  c10::DispatchKey key = c10::DispatchKey::Undefined;
  c10::DispatchKey autograd_key = c10::DispatchKey::Undefined;
  c10::DispatchKey autocast_key = c10::DispatchKey::Undefined;
  std::string name;
  int count = 1;
  size_t capacity = 0;    // bytes a device
  int generators = 0;     // default generators; 0: one a device
  bool strict = true;     // an operator with host and device tensors raises
  bool deferred = false;  // deferred mode: order.h
  bool orders_data = false;  // work on the same memory runs in the order of the calls, whatever its streams
  size_t state_bytes = 0;  // of a generator's state, a seed and an offset; 0: it is the host generator's
  bool like_hardware = false;  // hardware-like mode: hardware.cpp
  bool modelled = false;  // the allocator is modelled (caching.h), in place of a count of bytes
  size_t reserve = 0;     // bytes of a device that the program cannot have
  size_t padding = 0;     // bytes that the allocator adds to each request
  bool arena = false;     // one growing range of addresses in place of segments
};
inline Config& config() {
  return singleton<Config>();
}

std::string upper_name();  // "NPU", as error texts have it

inline bool is_simulated(const c10::Device& device) {
  return device.type() == config().type;
}
inline bool is_simulated(const at::Tensor& tensor) {
  return tensor.defined() && is_simulated(tensor.device());
}
inline size_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<size_t>(tensor.numel() * tensor.itemsize()) : 0;
}

// ------------------------------------------------------------------------------------------- memory
// The context of every device DataPtr.
struct Block {
  c10::DataPtr host;  // the memory
  size_t bytes;
  c10::DeviceIndex device;
  uint64_t id;           // never used twice, unlike the address
  c10::StreamId stream;  // the stream it was allocated on
  std::vector<c10::StreamId> recorded;  // by record_stream, when an observer watches
  Piece* piece = nullptr;  // of the allocator's model
  uint64_t key = 0;        // of a dry run: hooks.h
};
c10::Allocator* allocator();
// The block of a storage; nullptr for an empty one.
Block* block_of(const c10::StorageImpl& storage);
// Device memory of the given size that takes ownership of host memory. Raises OutOfMemoryError.
c10::DataPtr adopt(c10::DataPtr host, size_t bytes, c10::DeviceIndex device);
// The part of a device's memory that this process may use.
void set_memory_fraction(c10::DeviceIndex index, double fraction);
double memory_fraction(c10::DeviceIndex index);
uint64_t next_block();  // the next block has this id or a later one
uint64_t new_id();
// Whether work of the device is dropped, because an operator has failed there.
bool is_lost(c10::DeviceIndex index);
void record_stream(const c10::DataPtr& data, const c10::Stream& stream);
// Changes the size of a device storage, keeping what fits.
void resize(const c10::Storage& storage, size_t bytes);
void register_memory();

// A storage that may change its size.
inline c10::Storage make_storage(c10::DataPtr data, size_t bytes, c10::Allocator* from) {
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), from, /*resizable=*/true);
}

// Page-locked host memory.
struct PinnedRange {
  const char* base;
  size_t bytes;
  uint64_t id;
};
at::HostAllocator* pinned_allocator();
std::optional<PinnedRange> pinned_range(const void* pointer);
inline bool is_pinned(const void* pointer) {
  return pinned_range(pointer).has_value();
}
// Page-locks memory that another allocator owns, as cudaHostRegister does.
void register_host(void* data, size_t bytes);
void unregister_host(void* data);

// ---------------------------------------------------------------------------- devices, streams, events
c10::DeviceIndex current_device();
// Raises what the vendor's runtime raises for an index without a device.
void check_device(c10::DeviceIndex index);
// A process that is forked after poison_fork() cannot use the device.
void poison_fork();
bool is_in_bad_fork();
void check_fork();
void set_current_device(c10::DeviceIndex index);
c10::DeviceIndex index_of(c10::Device device);  // the current one where it has no index
// Whether the device has a context in this process: whether memory was allocated there.
bool was_used(c10::DeviceIndex index);
void mark_used(c10::DeviceIndex index);
// Whether memory was allocated there, a stream was created, or it was current when a stream was asked for.
bool has_streams(c10::DeviceIndex index);
inline c10::Stream stream_of(c10::DeviceIndex index, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(config().type, index), id);
}
c10::Stream current_stream(c10::DeviceIndex index);
c10::Stream new_stream(c10::DeviceIndex index);
void synchronize_device(c10::DeviceIndex index);
int64_t event_time_us(int64_t event);  // the address of a recorded event
double event_elapsed_ms(int64_t start, int64_t end);  // addresses of two recorded events
void register_device();
void finish_collectives();  // waits for every collective that has been started
// Hardware-like mode: takes time and prints on both outputs, as drivers do at the first use of a device.
void start_as_hardware(c10::DeviceIndex index);

// -------------------------------------------------------------------------------------------- random
at::Generator new_generator(c10::DeviceIndex index);
const at::Generator& default_generator(c10::DeviceIndex index);
// The host generator from which an operator draws.
at::Generator next_generator(const at::Generator& generator);
// The state, during a capture too.
at::Tensor generator_state(const at::Generator& generator);
void set_generator_state(const at::Generator& generator, const at::Tensor& state);

// ----------------------------------------------------------------------------------------- observers
using StreamKey = std::pair<c10::DeviceIndex, c10::StreamId>;
inline StreamKey key_of(const c10::Stream& stream) {
  return {stream.device_index(), stream.id()};
}

// Observers of what a process does with the device: the recorder of graphs, the race detector, deferred mode.

// One operator, or a copy (as aten::copy_), on the stream that it is queued on.
struct Work {
  const c10::OperatorHandle& op;
  const Stack& arguments;  // as the caller gave them: device tensors
  c10::Stream stream;
};
// A request for device memory. memory: the host memory to use, if that is decided already.
struct Allocation {
  uint64_t id;
  size_t bytes;
  c10::Stream stream;
  c10::DataPtr& memory;
};
// A collective that was started on the caller's stream, and runs on a stream of its group.
struct Collective {
  std::string name, group;
  c10::Stream caller, stream;
  std::vector<at::Tensor> reads, writes;
};

// Each function is called on the thread that does the work; an exception from a `before` function prevents the work.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void before_work(const Work&) {}
  virtual void after_work(const Work&, const Stack& /*results*/) {}
  virtual void before_record(const void* /*event*/, const c10::Stream&) {}
  virtual void before_wait(const void* /*event*/, const c10::Stream&) {}
  virtual void event_destroyed(const void* /*event*/) {}
  // The host waits for, or queries, a stream or an event; neither: everything on the device.
  virtual void before_host_wait(const c10::Stream*, const void* /*event*/) {}
  virtual void before_device_wait(c10::DeviceIndex) {}  // after the call above
  virtual void before_collective(const Collective&) {}
  virtual void before_allocation(Allocation&) {}
  virtual void before_free(Block&) {}  // raises nothing
  virtual void before_host_free(uint64_t /*id of a page-locked range*/) {}
  virtual void cache_emptied(c10::DeviceIndex) {}

  static void add(Observer* observer) { all().push_back(observer); }  // never removed
  // An observer that does not watch is not called.
  void watch(bool on) {
    if (watching_.exchange(on) != on) count_ += on ? 1 : -1;
  }
  bool watching() const { return watching_; }
  static bool any() { return count_.load(std::memory_order_relaxed) > 0; }
  template <typename Call>
  static void each(const Call& call) {
    if (!any()) return;
    for (auto* observer : all()) {
      if (observer->watching_) call(*observer);
    }
  }

 private:
  static std::vector<Observer*>& all() { return singleton<std::vector<Observer*>>(); }
  static inline std::atomic<int> count_{0};
  std::atomic<bool> watching_{false};
};

// Whether this thread carries out work of the device: what that does on the host is not the program's own access.
inline thread_local int t_device_work = 0;
inline bool in_device_work() {
  return t_device_work > 0;
}
class DeviceWorkGuard {
 public:
  DeviceWorkGuard() { t_device_work++; }
  ~DeviceWorkGuard() { t_device_work--; }
  DeviceWorkGuard(const DeviceWorkGuard&) = delete;
  DeviceWorkGuard& operator=(const DeviceWorkGuard&) = delete;
};

} // namespace accel_sim
