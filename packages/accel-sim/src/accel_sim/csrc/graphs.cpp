// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Graphs: work that is recorded once and replayed into the same memory.
#include "aten.h"
#include "graphs.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>

#include <cstring>
#include <unordered_set>

namespace accel_sim {

namespace {

constexpr size_t kHost = static_cast<size_t>(-1);     // a host tensor, kept as it is
constexpr size_t kNothing = static_cast<size_t>(-2);  // a device tensor without elements

const c10::Storage& nothing() {
  static auto* storage = new c10::Storage(
      make_storage(c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU)), 0, c10::GetCPUAllocator()));
  return *storage;
}

c10::Storage empty_on(c10::DeviceIndex index) {
  return make_storage(c10::DataPtr(nullptr, c10::Device(config().type, index)), 0, allocator());
}

} // namespace

// The recorded work. It keeps alive what was allocated while it was recorded, and only that: as on hardware, other
// memory that it works on must not be freed, which a replay reports here.
class Tape {
 public:
  // Memory with a block of this number or a later one was allocated by what is recorded.
  void start(uint64_t first_block) { first_block_ = first_block; }
  bool owns(const c10::StorageImpl& storage) const {
    const auto* block = block_of(storage);
    return block == nullptr || block->id >= first_block_;
  }
  void record(const Work& work, const Stack& results) {
    if (work.op.hasTag(at::Tag::inplace_view)) return;  // the shape alone
    std::unordered_set<const c10::StorageImpl*> given;
    const auto note = [&](const at::Tensor& tensor) {
      if (is_simulated(tensor)) given.insert(tensor.storage().unsafeGetStorageImpl());
      return tensor;
    };
    Node node{work.op, work.arguments, {}, {}};
    for (auto value : work.arguments) change_tensors(value, note);
    bool works = work.op.schema().is_mutable();
    std::vector<at::Tensor> fresh = tensors_of(results);
    for (auto& tensor : fresh) {
      if (is_simulated(tensor) && given.count(tensor.storage().unsafeGetStorageImpl()) == 0) {
        works = true;
      } else {
        tensor = at::Tensor();
      }
    }
    if (!works) return;  // a view
    for (auto& value : node.arguments) {
      change_tensors(value, [&](const at::Tensor& tensor) { return remove_memory(tensor, node); });
    }
    for (const auto& tensor : fresh) node.results.push_back(remove_memory(tensor, node));
    nodes_.push_back(std::move(node));
  }
  void replay() const {
    const auto memory = this->memory();
    for (const auto& node : nodes_) {
      size_t next = 0;
      const auto give_memory = [&](const at::Tensor& tensor) {
        if (!tensor.defined()) return tensor;
        const auto place = node.places[next++];
        if (place == kHost) return tensor;
        return with_metadata_of(
            tensor, place == kNothing ? empty_on(current_device()) : memory[place], config().key);
      };
      Stack stack = node.arguments;
      for (auto& value : stack) change_tensors(value, give_memory);
      std::vector<at::Tensor> results;
      for (const auto& tensor : node.results) results.push_back(give_memory(tensor));
      run_observed(node.op, &stack, [&](const c10::OperatorHandle& op, Stack* s) {
        op.operator_name().name == "aten::copy_" ? run_copy(op, s) : run_into(op, s, results);
      });
    }
  }
  // Fills what it owns with 0xFF bytes: NaN in every floating type.
  void poison() {
    for (const auto& place : places_) {
      if (place.block < first_block_) continue;
      auto* impl = place.own.unsafeGetStorageImpl();
      if (impl->data() == place.data) std::memset(place.data, 0xFF, impl->nbytes());
    }
  }
  bool empty() const { return nodes_.empty(); }

 private:
  struct Place {
    c10::Storage own;                                  // for memory allocated in the capture
    c10::weak_intrusive_ptr<c10::StorageImpl> outside;
    uint64_t block;
    void* data;
  };
  // An operator with its arguments as they were. In place of a device tensor there is one of the same shape
  // without memory; `places` says where its memory is.
  struct Node {
    c10::OperatorHandle op;
    Stack arguments;
    std::vector<at::Tensor> results;  // undefined where the operator made no new memory
    std::vector<size_t> places;       // of the device tensors, in order
  };
  size_t place_of(const at::Tensor& tensor) {
    const auto& storage = tensor.storage();
    const auto* block = block_of(*storage.unsafeGetStorageImpl());
    if (block == nullptr) return kNothing;
    const auto [found, is_new] = place_of_block_.try_emplace(block->id, places_.size());
    if (is_new) {
      const bool own = owns(*storage.unsafeGetStorageImpl());
      places_.push_back(Place{own ? storage : c10::Storage(nothing()), storage.getWeakStorageImpl(), block->id,
                              storage.unsafeGetStorageImpl()->mutable_data()});
    }
    return found->second;
  }
  at::Tensor remove_memory(const at::Tensor& tensor, Node& node) {
    if (!tensor.defined()) return tensor;
    if (!is_simulated(tensor)) {
      node.places.push_back(kHost);
      if (tensor.dim() > 0) return tensor;  // page-locked memory, read at each replay
      auto number = tensor.detach().clone();  // passed by value
      if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) number.unsafeGetTensorImpl()->set_wrapped_number(true);
      return number;
    }
    node.places.push_back(place_of(tensor));
    return with_metadata_of(tensor, nothing(), c10::DispatchKey::CPU);
  }
  std::vector<c10::Storage> memory() const {
    std::vector<c10::Storage> result;
    for (const auto& place : places_) {
      c10::Storage storage = place.own;
      if (place.block < first_block_) {
        auto alive = place.outside.lock();
        storage = alive.get() ? c10::Storage(std::move(alive)) : c10::Storage(nothing());
      }
      const auto* block = block_of(*storage.unsafeGetStorageImpl());
      TORCH_CHECK(
          block != nullptr && block->id == place.block && storage.data() == place.data,
          "a graph cannot be replayed: memory that it works on was freed or moved after the capture. On hardware the "
          "replay would use whatever is there now. Keep every tensor that the captured code reads or writes.");
      result.push_back(std::move(storage));
    }
    return result;
  }

  uint64_t first_block_ = 0;
  std::vector<Place> places_;
  std::map<uint64_t, size_t> place_of_block_;
  std::vector<Node> nodes_;
};

namespace {

bool is_mask(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte);
}

bool starts_with(const std::string& name, const char* start) {
  return name.rfind(start, 0) == 0;
}

// Operators whose result has a size or a value that the host reads before the call returns.
bool reads_on_host(const Work& work) {
  const auto& name = work.op.operator_name().name;
  if (name == "aten::_local_scalar_dense") return true;
  if (name == "aten::index" || name == "aten::_unsafe_index" || starts_with(name, "aten::index_put") ||
      name == "aten::_index_put_impl_" || name == "aten::_unsafe_index_put") {
    const bool fills = work.arguments.size() > 2 && work.arguments[2].toTensor().numel() == 1;
    for (const auto& index : tensors_of({work.arguments[1]})) {
      if (is_mask(index) && !fills) return true;
    }
    return false;
  }
  if (name == "aten::repeat_interleave" && work.arguments.back().isInt()) return false;
  return work.op.hasTag(at::Tag::data_dependent_output) || work.op.hasTag(at::Tag::dynamic_output_shape);
}

std::string not_permitted_error() {
  return upper_name() + " error: operation not permitted when stream is capturing";
}

// The vendor's error text for an operator that cannot be captured: one that makes the host wait for the device, or reads
// host memory that the device cannot reach by itself. Empty for any other.
std::string capture_error(const Work& work) {
  if (reads_on_host(work)) return not_permitted_error();
  const bool copies = work.op.operator_name().name == "aten::copy_";
  for (const auto& tensor : tensors_of(work.arguments)) {
    if (!tensor.defined() || is_simulated(tensor) || (tensor.dim() == 0 && !copies)) continue;
    if (!is_pinned(tensor.storage().data())) {
      return "Cannot copy between CPU and " + upper_name() + " tensors during " + upper_name() +
          " graph capture unless the CPU tensor is pinned. Please use tensor.pin_memory() or allocate the tensor with "
          "pin_memory=True.";
    }
    if (copies && !work.arguments[2].toBool()) return not_permitted_error();
  }
  return "";
}

struct CaptureOptions {
  at::GraphCaptureMode mode = at::GraphCaptureMode::Global;
  bool executes = false;                  // the captured code runs as well, and may read what it computed (hpu)
  std::vector<at::Generator> generators;  // registered ones, in addition to the default ones
};

// The number of the capture that records the operator which this thread is at.
thread_local uint64_t t_recording = 0;

// A capture under way: which streams it has reached, what is forbidden in it, and the copies that captured code
// works on, so that it changes nothing until it is replayed.
class Capture final : public Observer {
 public:
  void begin(CaptureOptions options) {
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
  Tape end() {
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
  bool has(const c10::Stream& stream) {
    if (!number_) return false;
    std::lock_guard<std::mutex> lock(mutex_);
    return streams_.count(key_of(stream)) != 0;
  }
  bool records_here() { return t_recording != 0 && t_recording == number_ && !options_.executes; }
  bool forbids(const c10::Stream& stream) { return has(stream) && !options_.executes; }
  std::optional<c10::Storage> copy_of(const c10::Storage& storage) {
    if (!records_here()) return std::nullopt;
    const auto& impl = *storage.unsafeGetStorageImpl();
    if (tape_.owns(impl)) return std::nullopt;
    std::lock_guard<std::mutex> lock(mutex_);
    const auto [found, is_new] = copies_.try_emplace(block_of(impl)->id);
    if (is_new) {
      auto data = c10::GetCPUAllocator()->allocate(impl.nbytes());
      std::memcpy(data.get(), impl.data(), impl.nbytes());
      found->second = make_storage(std::move(data), impl.nbytes(), c10::GetCPUAllocator());
    }
    return found->second;
  }

  void before_work(const Work& work) override {
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
  void after_work(const Work& work, const Stack& results) override {
    if (t_recording == 0 || t_recording != number_) return;
    std::lock_guard<std::mutex> lock(mutex_);
    t_recording = 0;
    tape_.record(work, results);
  }
  void before_record(const void* event, const c10::Stream& stream) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = streams_.find(key_of(stream));
    if (found == streams_.end()) {
      events_.erase(event);
    } else {
      events_[event] = found->second;
    }
  }
  void before_wait(const void* event, const c10::Stream& stream) override {
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
  void event_destroyed(const void* event) override {
    std::lock_guard<std::mutex> lock(mutex_);
    events_.erase(event);
  }
  void before_host_wait(const c10::Stream* stream, const void* event) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!number_ || options_.executes) return;
    const bool captured = stream ? streams_.count(key_of(*stream)) != 0 : event ? events_.count(event) != 0 : true;
    const bool unsafe = options_.mode == at::GraphCaptureMode::Global ||
        (options_.mode == at::GraphCaptureMode::ThreadLocal && std::this_thread::get_id() == thread_);
    if (captured || unsafe) refuse(not_permitted_error());
  }

 private:
  // The position of a stream, and the positions of the other streams that it has waited for.
  using Seen = std::map<StreamKey, uint64_t>;
  [[noreturn]] void refuse(const std::string& sentence) {
    broken_ = true;
    TORCH_CHECK(false, sentence);
  }
  // Captured random numbers are drawn at the replays: the capture leaves the generator's state as it was.
  void keep_generator(const Work& work) {
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
    if (generators_.count(impl) == 0) generators_[impl] = {generator, generator_state(generator)};
  }
  bool joined() const {
    const auto& seen = streams_.at(key_of(*origin_));
    for (const auto& [key, line] : streams_) {
      const auto own = line.find(key);
      const auto waited = seen.find(key);
      if (own != line.end() && (waited == seen.end() || waited->second < own->second)) return false;
    }
    return true;
  }
  void forget() {
    watch(false);
    number_ = 0;
    streams_.clear();
    events_.clear();
    copies_.clear();
    for (auto& [_, kept] : std::exchange(generators_, {})) set_generator_state(kept.first, kept.second);
  }

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
  return singleton<Capture>();
}

uint64_t next_pool() {
  static std::atomic<uint64_t> pools{1};
  return pools++;
}

std::string class_name() {
  return upper_name() + "Graph";
}

} // namespace

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

c10::MempoolId_t new_graph_pool() {
  return {0, next_pool()};
}

void SimGraph::begin(c10::MempoolId_t pool, at::GraphCaptureMode mode, bool executes) {
  TORCH_CHECK(
      !tape_, "This ", class_name(),
      " instance already owns a captured graph. To capture a new graph, create a new instance.");
  if (mode == at::GraphCaptureMode::Default) mode = at::GraphCaptureMode::Global;
  capture().begin({mode, executes, generators_});
  executes_ = executes;
  device_ = current_device();
  pool_ = pool.first || pool.second ? pool : c10::MempoolId_t{next_pool(), 0};
}

void SimGraph::capture_end() {
  tape_ = std::make_shared<Tape>(capture().end());
  if (tape_->empty() && !executes_) {
    TORCH_WARN(
        "The ", upper_name(), " Graph is empty. This usually means that the graph was attempted to be captured on ",
        "wrong device or stream.");
  }
}

void SimGraph::instantiate() {
  TORCH_CHECK(tape_, "Called ", class_name(), "::instantiate without a preceding successful capture.");
}

void SimGraph::replay() {
  TORCH_CHECK(tape_, "Called ", class_name(), "::replay without a preceding successful capture.");
  const c10::DeviceGuard guard(c10::Device(config().type, device_));
  check_not_capturing(class_name() + "::replay", device_);
  tape_->replay();
}

void SimGraph::reset() {
  tape_.reset();
}

c10::MempoolId_t SimGraph::pool() const {
  TORCH_CHECK(tape_, "Called ", class_name(), "::pool() without a preceding successful capture.");
  return pool_;
}

void SimGraph::debug_dump(const std::string&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "a graph of a simulated device cannot be drawn");
}

// Where torch's own builds have a graph behind torch.accelerator.Graph.
void register_graphs() {
  Observer::add(&capture());
  if (config().type != c10::DeviceType::CUDA && config().type != c10::DeviceType::XPU) return;
  at::GraphImplRegistry()->Register(
      c10::DeviceTypeName(config().type, /*lower_case=*/false),
      [](at::GraphImplArgs args) -> std::unique_ptr<at::GraphImplInterface> { return std::make_unique<SimGraph>(args); });
}

} // namespace accel_sim
