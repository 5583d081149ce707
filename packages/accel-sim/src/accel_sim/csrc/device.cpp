// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The device as torch sees it: current device, streams, events, generators, accelerator hooks. Work is done when a call
// returns, so a stream is a number and an event a time.
#include "graphs.h"
#include "runtime.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/HPUHooksInterface.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/detail/XPUHooksInterface.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/CallOnce.h>
#include <c10/util/Exception.h>
#include <torch/csrc/utils/device_lazy_init.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <pthread.h>

namespace accel_sim {

namespace {

constexpr int kDevices = 64;
thread_local c10::DeviceIndex t_device = 0;
thread_local std::array<c10::StreamId, kDevices> t_streams{};
std::array<std::atomic<bool>, kDevices> g_used{}, g_has_streams{};
std::atomic<c10::StreamId> g_next_stream{1};

using Clock = std::chrono::steady_clock;

struct Event {
  c10::Stream stream;
  Clock::time_point time;
};

// The index of a device that has streams.
c10::DeviceIndex stream_device(c10::Device device) {
  const auto index = index_of(device);
  TORCH_CHECK(
      index >= 0 && index < config().count, "Device index value ", static_cast<int>(index),
      " is out of index range [0, ", config().count, ")");
  return index;
}

class SimGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return config().type; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {config().type, current_device()}; }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index() && device.index() < config().count) t_device = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(config().count); }

  c10::Stream getStream(c10::Device device) const override {
    const auto index = stream_device(device);
    if (index == current_device()) g_has_streams[static_cast<size_t>(index)] = true;
    return current_stream(index);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_of(stream_device(device), 0); }
  c10::Stream getNewStream(c10::Device device, int) const override {
    check_fork();
    return new_stream(stream_device(device));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream exchangeStream(c10::Stream next) const override {
    const auto index = stream_device(next.device());
    const auto before = current_stream(index);
    t_streams[static_cast<size_t>(index)] = next.id();
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(static_cast<intptr_t>(stream.id()));
  }
  bool queryStream(const c10::Stream& stream) const override {
    Observer::each([&](auto& observer) { observer.before_host_wait(&stream, nullptr); });
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Observer::each([&](auto& observer) { observer.before_host_wait(&stream, nullptr); });
    finish_collectives();
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override { synchronize_device(index); }
  bool isStreamCapturing(const c10::Stream& stream) const override { return is_capturing(stream); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    record_stream(data, stream);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new Event{stream, Clock::now()};
    Observer::each([&](auto& observer) { observer.before_record(*event, stream); });
    *static_cast<Event*>(*event) = Event{stream, Clock::now()};
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) Observer::each([&](auto& observer) { observer.before_wait(event, stream); });
  }
  bool queryEvent(void* event) const override {
    if (event) Observer::each([&](auto& observer) { observer.before_host_wait(nullptr, event); });
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (event) Observer::each([&](auto& observer) { observer.before_host_wait(nullptr, event); });
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    Observer::each([&](auto& observer) { observer.event_destroyed(event); });
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    return event_elapsed_ms(reinterpret_cast<int64_t>(start), reinterpret_cast<int64_t>(end));
  }
};

} // namespace

double event_elapsed_ms(int64_t start, int64_t end) {
  TORCH_CHECK(start && end, "both events must be recorded before their elapsed time is asked for");
  const auto* from = reinterpret_cast<Event*>(start);
  const auto* to = reinterpret_cast<Event*>(end);
  // The clock of a device is not the host's, and its work does not start when the host asks for it.
  const double slower = config().like_hardware ? 1.2 : 1.0;
  return slower * std::chrono::duration<double, std::milli>(to->time - from->time).count();
}

int64_t event_time_us(int64_t event) {
  TORCH_CHECK(event, "the event must be recorded before its time is asked for");
  const auto time = reinterpret_cast<Event*>(event)->time.time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

c10::DeviceIndex current_device() {
  return t_device;
}

void check_device(c10::DeviceIndex index) {
  if (index >= 0 && index < config().count) return;
  const auto given = static_cast<int>(index);
  if (config().type == c10::DeviceType::CUDA) {
    constexpr int32_t kInvalidDevice = 101;  // cudaErrorInvalidDevice
    throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, kInvalidDevice, "CUDA error: invalid device ordinal");
  }
  TORCH_CHECK(
      config().type != c10::DeviceType::XPU, "The device index is out of range. It must be in [0, ", config().count,
      "), but got ", given, ".");
  TORCH_CHECK(false, config().name, " error: invalid device ordinal ", given, ", there are ", config().count);
}

void set_current_device(c10::DeviceIndex index) {
  check_fork();
  check_device(index);
  t_device = index;
}

c10::DeviceIndex index_of(c10::Device device) {
  return device.has_index() ? device.index() : current_device();
}

bool was_used(c10::DeviceIndex index) {
  return index >= 0 && index < kDevices && g_used[static_cast<size_t>(index)];
}

bool has_streams(c10::DeviceIndex index) {
  return was_used(index) || g_has_streams[static_cast<size_t>(index)];
}

void mark_used(c10::DeviceIndex index) {
  if (g_used[static_cast<size_t>(index)].exchange(true)) return;
  poison_fork();
  if (config().like_hardware) start_as_hardware(index);
}

c10::Stream current_stream(c10::DeviceIndex index) {
  return stream_of(index, t_streams[static_cast<size_t>(index)]);
}

c10::Stream new_stream(c10::DeviceIndex index) {
  g_has_streams[static_cast<size_t>(index)] = true;
  return stream_of(index, g_next_stream++);
}

void synchronize_device(c10::DeviceIndex index) {
  check_fork();
  check_device(index);
  Observer::each([](auto& observer) { observer.before_host_wait(nullptr, nullptr); });
  Observer::each([&](auto& observer) { observer.before_device_wait(index); });
  finish_collectives();
}

namespace {

std::atomic<bool> g_forked{false};

} // namespace

void poison_fork() {
  if (config().type == c10::DeviceType::HPU) return;  // Habana's runtime does not check it
  static c10::once_flag once;
  c10::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] { g_forked = true; });
    torch::utils::register_fork_handler_for_device_init(config().type);
  });
}

bool is_in_bad_fork() {
  return g_forked.load(std::memory_order_relaxed);
}

void check_fork() {
  if (!is_in_bad_fork()) return;
  const auto name = upper_name();
  TORCH_CHECK(
      false, "Cannot re-initialize ", name, " in forked subprocess. To use ", name,
      " with multiprocessing, you must use the 'spawn' start method");
}

namespace {

// A generator of the host, and where `state_bytes` is set the seed and the offset from which each operator's numbers
// follow, as those of the real device do.
struct GeneratorState {
  explicit GeneratorState(at::Generator host) : inner(std::move(host)), seed(inner.current_seed()) {}
  void start(uint64_t new_seed, uint64_t new_offset = 0) {
    inner.set_current_seed(new_seed);
    seed = new_seed;
    offset = new_offset;
  }
  // The generator for the next operator; the first one's numbers are the host's.
  at::Generator next() {
    if (config().state_bytes) {
      constexpr uint64_t kEach = 12, kMix = 0x9E3779B97F4A7C15;  // as torch_npu counts; splitmix64's
      inner.set_current_seed(seed ^ (offset / kEach * kMix));
      offset += kEach;
    }
    return inner;
  }
  at::Generator inner;
  uint64_t seed, offset = 0;
};

class SimGenerator final : public c10::GeneratorImpl {
 public:
  SimGenerator(c10::DeviceIndex index, std::shared_ptr<GeneratorState> start)
      : c10::GeneratorImpl(c10::Device(config().type, index), c10::DispatchKeySet(config().key)), state(std::move(start)) {}

  void set_current_seed(uint64_t seed) override {
    check_allowed("set_current_seed");
    state->start(seed);
  }
  // A host generator has no offset; zero is where every sequence starts.
  void set_offset(uint64_t offset) override {
    if (config().state_bytes) state->offset = offset;
  }
  uint64_t get_offset() const override { return state->offset; }
  uint64_t current_seed() const override {
    check_allowed("current_seed");
    return state->seed;
  }
  uint64_t seed() override {
    check_allowed("seed");
    const auto drawn = state->inner.unsafeGetGeneratorImpl()->seed();
    state->start(drawn);
    return drawn;
  }
  void set_state(const c10::TensorImpl& given) override {
    check_allowed("set_state");
    write(given);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    check_allowed("get_state");
    return read();
  }
  c10::intrusive_ptr<c10::TensorImpl> read() const {
    if (!config().state_bytes) return state->inner.unsafeGetGeneratorImpl()->get_state();
    auto bytes = at::zeros({static_cast<int64_t>(config().state_bytes)}, at::TensorOptions().dtype(at::kByte));
    auto* data = static_cast<char*>(bytes.mutable_data_ptr());
    std::memcpy(data + offset_place(), &state->offset, sizeof(uint64_t));
    std::memcpy(data + seed_place(), &state->seed, sizeof(uint64_t));
    return bytes.getIntrusivePtr();
  }
  void write(const c10::TensorImpl& given) {
    if (!config().state_bytes) {
      state->inner.unsafeGetGeneratorImpl()->set_state(given);
      state->seed = state->inner.current_seed();
      return;
    }
    at::detail::check_rng_state(given);
    TORCH_CHECK(static_cast<size_t>(given.numel()) == config().state_bytes, "RNG state is wrong size");
    uint64_t seed = 0, offset = 0;
    std::memcpy(&seed, static_cast<const char*>(given.data()) + seed_place(), sizeof(seed));
    std::memcpy(&offset, static_cast<const char*>(given.data()) + offset_place(), sizeof(offset));
    state->start(seed, offset);
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& given) override {
    state = static_cast<SimGenerator&>(*given).state;
  }
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<SimGenerator>(device_.index(), state);
  }
  static c10::DeviceType device_type() { return config().type; }

  std::shared_ptr<GeneratorState> state;

 private:
  // On mps the seed is the last one, and where others have the offset it keeps other numbers.
  static bool seed_is_last() { return config().type == c10::DeviceType::MPS; }
  static size_t seed_place() { return seed_is_last() ? config().state_bytes - sizeof(uint64_t) : 0; }
  static size_t offset_place() { return seed_is_last() ? 0 : sizeof(uint64_t); }
  void check_allowed(const char* method) const {
    check_not_capturing(upper_name() + "GeneratorImpl::" + method, device_.index());
  }
  SimGenerator* clone_impl() const override {
    auto copy = std::make_shared<GeneratorState>(*state);
    copy->inner = state->inner.clone();
    return new SimGenerator(device_.index(), std::move(copy));
  }
};

SimGenerator& simulated(const at::Generator& generator) {
  return *static_cast<SimGenerator*>(generator.unsafeGetGeneratorImpl());
}

} // namespace

at::Generator new_generator(c10::DeviceIndex index) {
  return at::make_generator<SimGenerator>(
      index < 0 ? current_device() : index, std::make_shared<GeneratorState>(at::detail::createCPUGenerator()));
}

namespace {

// As on the device, a process that sets no seed draws its own numbers; on hpu they follow from the host's seed.
at::Generator new_default_generator(c10::DeviceIndex index) {
  auto generator = new_generator(index);
  const bool follows_host = config().type == c10::DeviceType::HPU;
  simulated(generator).state->start(
      follows_host ? at::detail::getDefaultCPUGenerator().current_seed() : c10::detail::getNonDeterministicRandom());
  return generator;
}

} // namespace

const at::Generator& default_generator(c10::DeviceIndex index) {
  static std::mutex mutex;
  static auto* generators = new std::vector<at::Generator>();
  std::lock_guard<std::mutex> lock(mutex);
  const auto count = config().generators ? config().generators : config().count;
  while (generators->size() < static_cast<size_t>(count)) {
    generators->push_back(new_default_generator(static_cast<c10::DeviceIndex>(generators->size())));
  }
  const auto wanted = index < 0 ? current_device() : index;
  check_device(wanted);
  return (*generators)[static_cast<size_t>(wanted % count)];
}

at::Generator next_generator(const at::Generator& generator) {
  return simulated(generator).state->next();
}

at::Tensor generator_state(const at::Generator& generator) {
  return at::Tensor(simulated(generator).read());
}

void set_generator_state(const at::Generator& generator, const at::Tensor& state) {
  simulated(generator).write(*state.unsafeGetTensorImpl());
}

namespace {

// What every accelerator answers alike.
template <typename Interface>
struct Common : Interface {
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return config().count > 0; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override { return was_used(index); }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(config().count); }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_current_device(index); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const auto before = current_device();
    set_current_device(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? current_device() : exchangeDevice(index);
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  c10::Device getDeviceFromPtr(void*) const override { return {config().type, current_device()}; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return new_generator(index); }
};

struct PrivateUse1Hooks final : Common<at::PrivateUse1HooksInterface> {
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize(storage, bytes);
  }
};

struct HpuHooks final : Common<at::HPUHooksInterface> {
  bool hasHPU() const override { return true; }
};

struct XpuHooks final : Common<at::XPUHooksInterface> {
  bool hasXPU() const override { return true; }
  int32_t getGlobalIdxFromDevice(const c10::Device& device) const override { return device.index(); }
  c10::DeviceIndex getNumGPUs() const override { return deviceCount(); }
  c10::DeviceIndex current_device() const override { return getCurrentDevice(); }
  void deviceSynchronize(c10::DeviceIndex index) const override { synchronize_device(index); }
};

struct CudaHooks final : Common<at::CUDAHooksInterface> {
  bool hasCUDA() const override { return true; }
  c10::DeviceIndex current_device() const override { return getCurrentDevice(); }
  int getNumGPUs() const override { return config().count; }
  c10::Allocator* getCUDADeviceAllocator() const override { return allocator(); }
  void deviceSynchronize(c10::DeviceIndex index) const override { synchronize_device(index); }
};

struct MpsHooks final : Common<at::MPSHooksInterface> {
  bool hasMPS() const override { return true; }
  bool isOnMacOSorNewer(unsigned, unsigned) const override { return true; }
  c10::Allocator* getMPSDeviceAllocator() const override { return allocator(); }
  void deviceSynchronize() const override { synchronize_device(accel_sim::current_device()); }
};

// torch makes the hooks of CUDA while it is imported: ours are put in their place. Both are an object
// without members, so only the table of functions changes.
void replace_cuda_hooks() {
  static_assert(sizeof(CudaHooks) == sizeof(at::CUDAHooksInterface));
  new (const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks())) CudaHooks();
}

} // namespace

void register_device() {
  c10::impl::device_guard_impl_registry[static_cast<size_t>(config().type)].store(&singleton<SimGuard>());
  switch (config().type) {
    case c10::DeviceType::PrivateUse1:
      at::RegisterPrivateUse1HooksInterface(new PrivateUse1Hooks());
      break;
    case c10::DeviceType::HPU:
      at::HPUHooksRegistry()->Register(
          "HPUHooks", [](at::HPUHooksArgs) -> std::unique_ptr<at::HPUHooksInterface> { return std::make_unique<HpuHooks>(); });
      break;
    case c10::DeviceType::XPU:
      at::XPUHooksRegistry()->Register(
          "XPUHooks", []() -> std::unique_ptr<at::XPUHooksInterface> { return std::make_unique<XpuHooks>(); });
      break;
    case c10::DeviceType::MPS:
      at::MPSHooksRegistry()->Register(
          "MPSHooks", []() -> std::unique_ptr<at::MPSHooksInterface> { return std::make_unique<MpsHooks>(); });
      break;
    case c10::DeviceType::CUDA:
      replace_cuda_hooks();
      break;
    default:
      TORCH_CHECK(false, "no simulated device of type ", config().type);
  }
}

} // namespace accel_sim
