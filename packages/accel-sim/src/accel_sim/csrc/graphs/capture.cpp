// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// A capture under way: which streams it has reached, what is forbidden meanwhile, and the copies that captured
// code works on, so that it changes nothing until it is replayed.
#include "graphs/graphs.h"

#include <c10/core/CPUAllocator.h>

#include <cstring>

namespace accel_sim {

namespace {

using torch::jit::Stack;
using StreamKey = std::pair<c10::DeviceIndex, c10::StreamId>;

StreamKey key_of(const c10::Stream& stream) {
  return {stream.device_index(), stream.id()};
}

class Capture final : public Observer {
 public:
  void begin(CaptureOptions options);
  Tape end();
  bool has(const c10::Stream& stream) {
    if (!number_) return false;
    std::lock_guard<std::mutex> lock(mutex_);
    return streams_.count(key_of(stream)) != 0;
  }
  bool records_here();
  bool forbids(const c10::Stream& stream) { return has(stream) && !options_.executes; }
  std::optional<c10::Storage> copy_of(const c10::Storage& storage);

  void before_work(const Work& work) override;
  void after_work(const Work& work, const Stack& results) override;
  void before_record(const void* event, const c10::Stream& stream) override;
  void before_wait(const void* event, const c10::Stream& stream) override;
  void event_destroyed(const void* event) override;
  void before_host_wait(const c10::Stream* stream, const void* event) override;

 private:
  // The position of a stream, and the positions of the other streams that it has waited for.
  using Seen = std::map<StreamKey, uint64_t>;
  [[noreturn]] void refuse(const std::string& sentence) {
    broken_ = true;
    TORCH_CHECK(false, sentence);
  }
  void keep_generator(const Work& work);
  bool joined() const;
  void forget();

  std::mutex mutex_;
  std::atomic<uint64_t> number_{0};  // of the capture under way
  bool broken_ = false;
  CaptureOptions options_;
  std::optional<c10::Stream> origin_;
  std::thread::id thread_;
  Tape tape_;
  std::map<StreamKey, Seen> streams_;
  std::map<const void*, Seen> events_;
  std::map<uint64_t, c10::Storage> copies_;
  std::map<c10::GeneratorImpl*, std::pair<at::Generator, at::Tensor>> generators_;
};

Capture& capture() {
  static auto* instance = new Capture();
  return *instance;
}
// The number of the capture that records the operator which this thread is at.
thread_local uint64_t t_recording = 0;

void Capture::begin(CaptureOptions options) {
  static uint64_t captures = 0;
  const auto stream = current_stream(current_device());
  std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(!number_, not_permitted_error());
  TORCH_CHECK(
      stream.id() != 0 || options.executes, upper_name(),
      " graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them on the "
      "default stream.)");
  options_ = std::move(options);
  origin_ = stream;
  thread_ = std::this_thread::get_id();
  broken_ = false;
  tape_ = Tape();
  tape_.start(next_block());
  streams_[key_of(stream)] = {};
  number_ = ++captures;
  watch(true);
}

bool Capture::joined() const {
  const auto& seen = streams_.at(key_of(*origin_));
  for (const auto& [key, line] : streams_) {
    const auto own = line.find(key);
    const auto waited = seen.find(key);
    if (own != line.end() && (waited == seen.end() || waited->second < own->second)) return false;
  }
  return true;
}

Tape Capture::end() {
  const auto stream = current_stream(current_device());
  std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(number_ != 0, upper_name(), " error: no capture is under way");
  TORCH_CHECK(stream == *origin_, "Capture must end on the same stream it began on.");
  const bool ends_well = options_.executes || joined();
  forget();
  TORCH_CHECK(!broken_, upper_name(), " error: operation failed due to a previous error during capture");
  TORCH_CHECK(ends_well, upper_name(), " error: capturing stream has unjoined work");
  if (!options_.executes) tape_.poison();
  return std::exchange(tape_, Tape());
}

void Capture::forget() {
  watch(false);
  number_ = 0;
  streams_.clear();
  events_.clear();
  copies_.clear();
  for (auto& [_, kept] : std::exchange(generators_, {})) inner_generator(kept.first).set_state(kept.second);
}

void Capture::before_work(const Work& work) {
  std::lock_guard<std::mutex> lock(mutex_);
  t_recording = 0;
  const auto key = key_of(work.stream);
  const auto found = streams_.find(key);
  if (!number_ || found == streams_.end()) return;
  if (!options_.executes) {
    if (const auto error = capture_error(work); !error.empty()) refuse(error);
    keep_generator(work);
  }
  found->second[key]++;
  t_recording = number_;
}

void Capture::after_work(const Work& work, const Stack& results) {
  if (t_recording == 0 || t_recording != number_) return;
  std::lock_guard<std::mutex> lock(mutex_);
  t_recording = 0;
  tape_.record(work, results);
}

// Captured random numbers are drawn at the replays: the capture leaves the generator's state as it was.
void Capture::keep_generator(const Work& work) {
  if (!work.op.hasTag(at::Tag::nondeterministic_seeded)) return;
  at::Generator generator = default_generator(work.stream.device_index());
  for (const auto& value : work.arguments) {
    if (value.isGenerator() && is_simulated(value.toGenerator().device())) generator = value.toGenerator();
  }
  bool known = false;
  for (int i = 0; i < config().count; i++) known |= generator == default_generator(static_cast<c10::DeviceIndex>(i));
  for (const auto& registered : options_.generators) known |= generator == registered;
  if (!known) {
    refuse("a generator that is not registered with the graph cannot be used during " + upper_name() +
           " graph capture; call register_generator_state before the capture.");
  }
  auto* impl = generator.unsafeGetGeneratorImpl();
  if (generators_.count(impl) == 0) generators_[impl] = {generator, inner_generator(generator).get_state()};
}

void Capture::before_record(const void* event, const c10::Stream& stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = streams_.find(key_of(stream));
  if (found == streams_.end()) {
    events_.erase(event);
  } else {
    events_[event] = found->second;
  }
}

void Capture::before_wait(const void* event, const c10::Stream& stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto moment = events_.find(event);
  const auto key = key_of(stream);
  if (options_.executes) return;
  if (moment == events_.end()) {
    if (streams_.count(key) != 0) {
      refuse(upper_name() + " error: dependency created on uncaptured work in another stream");
    }
    return;
  }
  if (stream.id() == 0) {
    refuse(upper_name() + " error: operation would make the legacy stream depend on a capturing blocking stream");
  }
  auto& seen = streams_[key];
  for (const auto& [other, count] : moment->second) seen[other] = std::max(seen[other], count);
  seen[key]++;
}

void Capture::event_destroyed(const void* event) {
  std::lock_guard<std::mutex> lock(mutex_);
  events_.erase(event);
}

void Capture::before_host_wait(const c10::Stream* stream, const void* event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!number_ || options_.executes) return;
  const bool captured = stream ? streams_.count(key_of(*stream)) != 0 : event ? events_.count(event) != 0 : true;
  const bool unsafe = options_.mode == at::GraphCaptureMode::Global ||
      (options_.mode == at::GraphCaptureMode::ThreadLocal && std::this_thread::get_id() == thread_);
  if (captured || unsafe) refuse(not_permitted_error());
}

bool Capture::records_here() {
  return t_recording != 0 && t_recording == number_ && !options_.executes;
}

std::optional<c10::Storage> Capture::copy_of(const c10::Storage& storage) {
  if (!records_here()) return std::nullopt;
  const auto& impl = *storage.unsafeGetStorageImpl();
  if (tape_.owns(impl)) return std::nullopt;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto [found, is_new] = copies_.try_emplace(block_of(impl)->id);
  if (is_new) {
    auto data = c10::GetCPUAllocator()->allocate(impl.nbytes());
    std::memcpy(data.get(), impl.data(), impl.nbytes());
    found->second = c10::Storage(
        c10::Storage::use_byte_size_t(), impl.nbytes(), std::move(data), c10::GetCPUAllocator(), /*resizable=*/true);
  }
  return found->second;
}

} // namespace

void begin_capture(CaptureOptions options) {
  capture().begin(std::move(options));
}

Tape end_capture() {
  return capture().end();
}

bool is_capturing(const c10::Stream& stream) {
  return capture().has(stream);
}

bool is_recorded_only() {
  return capture().records_here();
}

void check_not_capturing(const std::string& what, c10::DeviceIndex device) {
  TORCH_CHECK(
      !capture().forbids(current_stream(device)), "Cannot call ", what, " during ", upper_name(), " graph capture.");
}

std::optional<c10::Storage> capture_copy_of(const c10::Storage& storage) {
  return capture().copy_of(storage);
}

void register_captures() {
  Observer::add(&capture());
}

} // namespace accel_sim
