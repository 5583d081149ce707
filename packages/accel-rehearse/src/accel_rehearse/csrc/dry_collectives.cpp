// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Collectives of one rank of a group whose other ranks do not exist: counted, and on small tensors answered as if every
// other rank had the same numbers. What a rank broadcasts and sends is kept, for the rehearsals of other ranks.
#include "collectives.h"
#include "dry.h"

#include <ATen/core/ivalue.h>

#include <array>
#include <atomic>
#include <cstring>

namespace accel_rehearse {

namespace {

// What this rank broadcast and sent, by channel and number; and what others did in their rehearsals.
struct Messages {
  std::mutex mutex;
  std::map<std::string, std::string> recorded, replayed;
  std::map<std::string, int> next;
  std::atomic<int64_t> missing{0};
};
Messages& messages() {
  return singleton<Messages>();
}

constexpr size_t kRecorded = 64 << 10;  // larger tensors are not kept

bool is_small(const at::Tensor& tensor) {
  return bytes_of(tensor) <= setup().device_limit;
}

class DoneWork final : public c10d::Work {
 public:
  explicit DoneWork(Tensors outputs) : outputs_(std::move(outputs)) { finish(); }
  void blockCurrentStream() override {}
  int sourceRank() const override { return 0; }
  Tensors result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
    future->markCompleted(c10::IValue(outputs_));
    return future;
  }

 private:
  Tensors outputs_;
};

class DryBackend final : public c10d::Backend {
 public:
  DryBackend(int rank, int size, std::string name) : c10d::Backend(rank, size), name_(std::move(name)) {}
  const std::string getBackendName() const override { return name_; }
  c10::intrusive_ptr<Options> getBackendOptions() override {
    return c10::make_intrusive<Options>(name_, kBackendDefaultTimeout);
  }
  void setTimeout(std::chrono::milliseconds) override {}
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return calls_; }
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override {}
  WorkPtr endCoalescing() override { return done({}); }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    count("broadcast", tensors, tensors);
    for (auto& tensor : tensors) {
      pass("broadcast", " from " + std::to_string(options.rootRank), tensor, options.rootRank == rank_);
    }
    return done(tensors);
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    count("all_reduce", tensors, tensors);
    for (auto& tensor : tensors) reduce_alike(tensor, options.reduceOp);
    return done(tensors);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return allreduce(tensors, options);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    count("reduce", tensors, tensors);
    if (options.rootRank == rank_) {
      for (auto& tensor : tensors) reduce_alike(tensor, options.reduceOp);
    }
    return done(tensors);
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions&) override {
    count("all_gather", inputs, outputs.at(0));
    for (auto& output : outputs[0]) copy(output, inputs.at(0));
    return done(outputs[0]);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) override {
    setup().simulator->check_whole(name_, output, input, size_);
    count("all_gather", {input}, {output});
    // The input may be a piece of the output.
    if (is_small(output)) output.view({size_, -1}).copy_(input.reshape({1, -1}).clone());
    return done({output});
  }
  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    for (size_t i = 0; i < inputs.size(); i++) _allgather_base(outputs.at(i), inputs[i], options);
    return done(outputs);
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions&) override {
    const auto received = outputs.empty() ? Tensors() : outputs[0];
    count("gather", inputs, received);
    for (auto output : received) copy(output, inputs.at(0));
    return done(received);
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions&) override {
    count("scatter", inputs.empty() ? Tensors() : inputs[0], outputs);
    if (inputs.empty()) messages().missing++;
    else copy(outputs.at(0), inputs[0].at(static_cast<size_t>(rank_)));
    return done(outputs);
  }
  WorkPtr reduce_scatter(
      Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) override {
    count("reduce_scatter", inputs.at(0), outputs);
    copy(outputs.at(0), inputs[0].at(static_cast<size_t>(rank_)));
    reduce_alike(outputs[0], options.reduceOp);
    return done(outputs);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    setup().simulator->check_whole(name_, input, output, size_);
    count("reduce_scatter", {input}, {output});
    if (is_small(input)) {
      output.copy_(input.reshape({size_, -1}).select(0, rank_).reshape(output.sizes()));
      reduce_alike(output, options.reduceOp);
    }
    return done({output});
  }
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override {
    for (size_t i = 0; i < inputs.size(); i++) _reduce_scatter_base(outputs.at(i), inputs[i], options);
    return done(outputs);
  }
  WorkPtr alltoall_base(
      at::Tensor& output, at::Tensor& input, std::vector<int64_t>&, std::vector<int64_t>&,
      const c10d::AllToAllOptions&) override {
    count("all_to_all", {input}, {output});
    copy(output, input);
    return done({output});
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) override {
    count("all_to_all", inputs, outputs);
    for (size_t i = 0; i < outputs.size(); i++) copy(outputs[i], inputs.at(i));
    return done(outputs);
  }
  WorkPtr send(Tensors& tensors, int to, int) override {
    count("send", tensors, {});
    for (auto& tensor : tensors) pass("send", way(rank_, to), tensor, true);
    return done(tensors);
  }
  WorkPtr recv(Tensors& tensors, int from, int) override {
    count("recv", {}, tensors);
    for (auto& tensor : tensors) pass("send", way(from, rank_), tensor, false);
    return done(tensors);
  }
  WorkPtr recvAnysource(Tensors& tensors, int) override {
    count("recv", {}, tensors);
    messages().missing++;
    return done(tensors);
  }
  WorkPtr barrier(const c10d::BarrierOptions&) override {
    count("barrier", {}, {});
    return done({});
  }

 private:
  static WorkPtr done(Tensors outputs) {
    return c10::make_intrusive<DoneWork>(std::move(outputs));
  }
  static void copy(at::Tensor& to, const at::Tensor& from) {
    if (is_small(to) && to.numel() == from.numel() && !to.is_same(from)) to.copy_(from.reshape(to.sizes()));
  }
  // Every other rank has the same numbers, so that their average, maximum and minimum are what this one has.
  void reduce_alike(at::Tensor& tensor, const ReduceOp& op) const {
    if (op == ReduceOp::SUM && is_small(tensor) && tensor.scalar_type() != at::kBool) tensor.mul_(size_);
  }
  static std::string way(int from, int to) {
    return " from " + std::to_string(from) + " to " + std::to_string(to);
  }
  // The next message of a channel, by its group (`peers` of program.py reads it); and by the group's number, which is the
  // same for groups of other ranks that are alike: all ranks make their groups in one order.
  std::array<std::string, 2> next_keys(const std::string& operation, const std::string& way) {
    std::array<std::string, 2> keys{getGroupUid(), "alike-" + std::to_string(number_) + "-" + std::to_string(size_)};
    for (auto& key : keys) {
      key = operation + " " + key + way;
      key += " #" + std::to_string(messages().next[key]++);
    }
    return keys;
  }
  // Keeps what this rank gives, or answers with what the other gave in its own rehearsal. If the other was not rehearsed,
  // the rank in its place in another group answers.
  void pass(const std::string& operation, const std::string& way, at::Tensor& tensor, bool gives) {
    if (bytes_of(tensor) > kRecorded || size_ == 1) return;
    const auto flat = tensor.contiguous();  // memory of the device is the host's
    auto& all = messages();
    std::lock_guard<std::mutex> lock(all.mutex);
    for (const auto& key : next_keys(operation, way)) {
      if (gives) {
        all.recorded[key] = std::string(static_cast<const char*>(flat.data_ptr()), bytes_of(flat));
        continue;
      }
      const auto found = all.replayed.find(key);
      if (found == all.replayed.end() || found->second.size() != bytes_of(flat)) continue;
      std::memcpy(flat.data_ptr(), found->second.data(), found->second.size());
      if (!flat.is_same(tensor)) tensor.copy_(flat);
      return;
    }
    if (!gives) all.missing++;
  }
  void count(const char* operation, const Tensors& inputs, const Tensors& outputs) {
    calls_++;
    int64_t given = 0, got = 0;
    for (const auto& tensor : inputs) given += static_cast<int64_t>(bytes_of(tensor));
    for (const auto& tensor : outputs) got += static_cast<int64_t>(bytes_of(tensor));
    const auto& first = inputs.empty() ? outputs : inputs;
    const std::string dtype = first.empty() ? "" : c10::toString(first[0].scalar_type());
    std::lock_guard<std::mutex> lock(counts().mutex);
    auto& [calls, bytes] = counts().collectives[{operation, getGroupUid(), size_, ledger().phase, dtype}];
    calls++;
    bytes += std::max(given, got);
  }

  static int next_number() {
    static std::atomic<int> made{0};
    return made++;
  }

  std::string name_;
  int number_ = next_number();
  uint64_t calls_ = 0;
};

} // namespace

void bind_groups(py::module_& m) {
  m.def("recorded", [] {
    std::lock_guard<std::mutex> lock(messages().mutex);
    std::map<std::string, py::bytes> result;
    for (const auto& [key, value] : messages().recorded) result.emplace(key, py::bytes(value));
    return std::make_pair(result, messages().missing.load());
  });
  m.def("replay", [](std::map<std::string, std::string> given) {
    std::lock_guard<std::mutex> lock(messages().mutex);
    messages().replayed.merge(given);
  });
  m.def("backend", [](int rank, int size, std::string name) -> c10::intrusive_ptr<c10d::Backend> {
    return c10::make_intrusive<DryBackend>(rank, size, std::move(name));
  });
}

} // namespace accel_rehearse
