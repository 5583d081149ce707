// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Collectives between simulated devices: gloo on aliases of their memory, with the rules of the real backends. A
// collective starts after the work on its caller's stream, and runs on a stream of its group.
#include "agreement.h"
#include "collective_work.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#include <torch/library.h>

#include <algorithm>
#include <cctype>

namespace accel_sim {

namespace {

using c10d::ProcessGroup;

// What the backends of real devices refuse, where gloo and bytes in host memory would do it. A backend that is not
// listed refuses none of it. premultiplied: has PREMUL_SUM. plain: raises RuntimeError, not ValueError and TypeError.
struct Backend {
  const char* name;
  bool hpu, average, short_integers, fp8, premultiplied = false, plain = false;
};

// From ProcessGroupNCCL.cpp of torch, ProcessGroupXCCL.cpp and xccl.h of torch-xpu-ops (2026-08), process_group_cncl.cpp
// of torch_mlu (r2.4), ProcessGroupHCCL.cpp and HCCLUtils.cpp of torch_npu (2026-08), and collective_utils.cpp of
// gaudi-pytorch-bridge 1.19.
constexpr Backend BACKENDS[] = {
    {"nccl", false, true, false, true, true},
    {"xccl", false, true, false, true},
    {"cncl", false, false, false, false},
    {"hccl", false, true, true, true, true, true},
    {"hccl", true, false, false, true},
};

Backend find(const std::string& name, const at::Tensor& tensor) {
  for (const auto& backend : BACKENDS) {
    if (name == backend.name && tensor.is_hpu() == backend.hpu) return backend;
  }
  return {"", false, true, true, true};
}

std::string upper(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

bool is_short(at::ScalarType dtype) {
  return dtype == at::kShort || dtype == at::kUInt16 || dtype == at::kUInt32 || dtype == at::kUInt64;
}

void check_moved(const std::string& name, const std::vector<at::Tensor>& tensors) {
  for (const auto& tensor : tensors) {
    const auto rules = find(name, tensor);
    const auto dtype = tensor.scalar_type();
    TORCH_CHECK_TYPE(
        (rules.short_integers || !is_short(dtype)) && (rules.fp8 || !c10::isFloat8Type(dtype)),
        "Input tensor data type is not supported for ", upper(name), " process group: ", dtype);
  }
}

template <typename... Words>
void check_value(const Backend& rules, bool holds, const Words&... words) {
  TORCH_CHECK(holds || !rules.plain, words...);
  TORCH_CHECK_VALUE(holds, words...);
}

// What torch_npu 2.13.0 refuses of its tensors, as its ProcessGroupHCCL answers on an emulated driver. It refuses sums of
// float64 as well, which are right here: its .to(torch.float64) gives float32, and programs that ask for it work.
void check_hccl(const char* collective, const at::Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  const std::string name = collective;
  TORCH_CHECK(name == "allreduce" || !tensor.is_complex(), "Unsupported data type for HCCL process group");
  const bool scatters = name == "reduce_scatter" && (dtype == at::kByte || dtype == at::kBool);
  TORCH_CHECK(!scatters, "HCCL ", name, ": Unsupported data type at::kByte/at::kBool");
  const bool unsigned_or_fp8 = (is_short(dtype) && dtype != at::kShort) || c10::isFloat8Type(dtype);
  TORCH_CHECK(!unsigned_or_fp8, "HCCL ", name, ": Unsupported data type at::ScalarType::", dtype);
}

// collective: as torch_npu calls it.
void check_reduced(const std::string& name, const char* collective, const at::Tensor& tensor, const ReduceOp& op) {
  check_moved(name, {tensor});
  const auto rules = find(name, tensor);
  if (rules.plain) check_hccl(collective, tensor);
  check_value(rules, op != ReduceOp::BAND, "Cannot use ReduceOp.BAND with ", upper(name));
  check_value(rules, op != ReduceOp::BOR, "Cannot use ReduceOp.BOR with ", upper(name));
  check_value(rules, op != ReduceOp::BXOR, "Cannot use ReduceOp.BXOR with ", upper(name));
  const bool average = op == ReduceOp::AVG;
  TORCH_CHECK_VALUE(!average || rules.average, "Cannot use ReduceOp.AVG with ", upper(name));
  TORCH_CHECK_TYPE(!average || tensor.scalar_type() != at::kBool, "Cannot use ReduceOp.AVG with boolean inputs");
  if (op != ReduceOp::PREMUL_SUM) return;
  check_value(rules, rules.premultiplied, "Cannot use ReduceOp.PREMUL_SUM with ", upper(name));
  check_value(rules, tensor.is_floating_point(), "PreMulSum Data type must be half, float, bfloat16 or double");
}

void check_piece(const std::vector<at::Tensor>& pieces, int rank, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(
      pieces.at(static_cast<size_t>(rank)).numel() == tensor.numel(),
      "All tensor operands to scatter/gather must have the same size");
}

void check_alike(const char* what, const std::vector<std::vector<at::Tensor>>& pieces, const at::Tensor& tensor) {
  for (const auto& list : pieces) {
    for (const auto& piece : list) {
      TORCH_CHECK_VALUE(
          piece.scalar_type() == tensor.scalar_type() && piece.sizes() == tensor.sizes(), what,
          ": invalid tensor type or size (expected ", tensor.scalar_type(), " ", tensor.sizes(), ", got ",
          piece.scalar_type(), " ", piece.sizes(), ")");
    }
  }
}

using GroupStreams = std::map<c10::DeviceIndex, std::optional<c10::Stream>>;  // the inner ones of a group

struct PreparedTensor {
  at::Tensor tensor, row, worked_on;
};

thread_local std::vector<PreparedTensor> t_prepared;

// Adds a tensor to the collective that this thread is preparing. row: a flat host view of it; the result: what to work
// on, a copy in deferred mode, so that the result is not visible early.
at::Tensor prepare_tensor(const at::Tensor& tensor, const at::Tensor& row) {
  if (!is_simulated(tensor)) return row;
  if (deferring()) run_deferred(current_stream(tensor.device().index()));
  t_prepared.push_back({tensor, row, deferring() ? row.clone() : row});
  return t_prepared.back().worked_on;
}

void discard_prepared() {  // of a collective that is not started
  t_prepared.clear();
  t_loans.clear();
}

void collective_started(
    SimWork& work, const std::string& group, GroupStreams& streams, const std::vector<at::Tensor>& outputs) {
  const auto all = std::exchange(t_prepared, {});
  const auto device = all.empty() ? current_device() : all[0].tensor.device().index();
  auto& inner = streams[device];
  if (!inner) inner = new_stream(device);
  const auto stream = *inner;
  Collective collective{lower_name(work.retrieveOpType()), group, current_stream(device), stream, {}, {}};
  std::vector<PreparedTensor> results;
  for (const auto& one : all) {
    const bool written = std::any_of(
        outputs.begin(), outputs.end(), [&](const auto& output) { return output.is_same(one.tensor); });
    (written ? collective.writes : collective.reads).push_back(one.tensor);
    if (written) results.push_back(one);
  }
  Observer::each([&](auto& observer) { observer.before_collective(collective); });
  work.runs_on(stream);
  if (!deferring()) return;
  work.at_end([results] {
    for (const auto& one : results) at::Tensor(one.row).copy_(one.worked_on);
  });
  defer(stream, [owner = work.shared()] { owner->run_to_end(); });
}

at::Tensor flat(const at::Tensor& tensor) {
  const bool contiguous = tensor.is_contiguous(tensor.suggest_memory_format());
  if (!contiguous) discard_prepared();
  TORCH_CHECK(contiguous, "Tensors must be contiguous");
  const auto host = is_simulated(tensor) ? lend(host_alias(tensor)) : tensor;
  const auto row = host.as_strided({host.numel()}, {1}, host.storage_offset());
  return order().watching() ? prepare_tensor(tensor, row) : row;
}

// What is only moved is moved as bytes: every dtype, and shapes need not agree.
at::Tensor bytes(const at::Tensor& tensor) {
  return flat(tensor).view(at::kByte);
}

// gloo adds real numbers only: complex ones as pairs, booleans as bytes of which the larger wins.
at::Tensor addable(const at::Tensor& tensor) {
  const auto host = flat(tensor);
  if (host.is_complex()) return at::view_as_real(host).view({-1});
  return host.scalar_type() == at::kBool ? host.view(at::kByte) : host;
}

ReduceOp on_gloo(const ReduceOp& op, at::ScalarType dtype) {
  if (dtype == at::kBool && op == ReduceOp::SUM) return ReduceOp::MAX;
  return op == ReduceOp::AVG || op == ReduceOp::PREMUL_SUM ? ReduceOp(ReduceOp::SUM) : op;
}

// A tensor as gloo adds it: multiplied first by the factor of a PREMUL_SUM, and in a type that gloo has. May be a copy.
at::Tensor summand(const at::Tensor& host, const ReduceOp& op) {
  const auto wide = host.scalar_type() == at::kShort ? host.to(at::kInt) : host;
  if (op != ReduceOp::PREMUL_SUM) return wide;
  const auto& by = *static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  return by.tensor_factor.defined() ? wide.mul(host_alias(by.tensor_factor)) : wide.mul(by.double_factor);
}

// What remains to be done with a sum: to be brought to where the result belongs, and, as gloo has no average, divided.
std::function<void()> completion(const ReduceOp& op, const at::Tensor& sum, const at::Tensor& to, int size) {
  const bool divides = op == ReduceOp::AVG;
  if (!divides && sum.is_same(to)) return nullptr;
  return [divides, sum, to, size]() mutable {
    if (!sum.is_same(to)) to.copy_(sum);
    if (divides) to.div_(size, to.is_floating_point() ? std::nullopt : std::make_optional<c10::string_view>("floor"));
  };
}

std::vector<int64_t> byte_splits(const std::vector<int64_t>& splits, const at::Tensor& tensor, int size) {
  const auto rows = tensor.dim() ? tensor.size(0) : 1;
  const auto row = rows ? static_cast<int64_t>(tensor.nbytes()) / rows : 0;
  if (splits.empty()) {
    TORCH_CHECK(rows % size == 0, "the first dimension ", rows, " is not divisible by the group size ", size);
    return std::vector<int64_t>(static_cast<size_t>(size), rows / size * row);
  }
  std::vector<int64_t> result;
  for (const auto split : splits) result.push_back(split * row);
  return result;
}

void copy_pieces(const at::Tensor& from, const Tensors& pieces) {
  int64_t at = 0;
  for (const auto& piece : pieces) {
    at::Tensor(piece).copy_(from.narrow(0, at, piece.numel()));
    at += piece.numel();
  }
}

Tensors each_bytes(const Tensors& tensors) {
  Tensors result;
  for (const auto& tensor : tensors) result.push_back(bytes(tensor));
  return result;
}

bool equal_sizes(const Tensors& tensors) {
  for (const auto& tensor : tensors) { if (tensor.numel() != tensors[0].numel()) return false; }
  return true;
}

// operation, root: of a Call. finish: what remains once gloo is done. writes: the outputs change.
struct Rest {
  int64_t operation = -1, root = -1;
  std::function<void()> finish = nullptr;
  bool writes = true;
};

// gloo on aliases of the device's memory.
class SimBackend final : public c10d::Backend {
 public:
  SimBackend(c10::intrusive_ptr<c10d::Backend> gloo, std::string name)
      : c10d::Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)), name_(std::move(name)),
        agreement_(gloo_) {}

  const std::string getBackendName() const override { return name_; }
  c10::intrusive_ptr<Options> getBackendOptions() override {
    return c10::make_intrusive<Options>(name_, gloo_->getBackendOptions()->timeout);
  }
  void setTimeout(std::chrono::milliseconds timeout) override { gloo_->setTimeout(timeout); }
  void setSequenceNumberForGroup() override { gloo_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return gloo_->getSequenceNumberForGroup(); }

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override {
    coalescing_ = true;
    coalesced_.clear();
  }
  WorkPtr endCoalescing() override {
    coalescing_ = false;
    return started(OpType::COALESCED, std::exchange(coalesced_, {}), {});
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    check_moved(name_, tensors);
    const auto root = options.rootRank;
    const bool mine = root == rank_;
    return collective(
        OpType::BROADCAST, tensors.at(0), tensors[0], mine ? to_each(tensors[0]) : none(),
        mine ? none() : of_one(root, tensors[0]), tensors,
        [hosts = each_bytes(tensors), options, gloo = gloo_]() mutable { return gloo->broadcast(hosts, options); },
        {.root = root});
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    TORCH_CHECK(tensors.size() == 1, "a process has one tensor in an all_reduce, found ", tensors.size());
    return one_reduction(tensors[0], options.reduceOp, options.timeout);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    SimWork::Works parts;
    for (auto& tensor : tensors) parts.push_back(one_reduction(tensor, options.reduceOp, options.timeout));
    return started(OpType::ALLREDUCE_COALESCED, std::move(parts), tensors);
  }
  // Only the root's tensor may change; gloo uses the others as scratch memory.
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    DeviceWorkGuard inside;
    check_reduced(name_, "reduce", tensors.at(0), options.reduceOp);
    const auto host = addable(tensors[0]);
    const bool root = options.rootRank == rank_;
    Tensors hosts{summand(root ? host : host.clone(), options.reduceOp)};
    auto inner = options;
    inner.reduceOp = on_gloo(options.reduceOp, tensors[0].scalar_type());
    auto rest = root ? completion(options.reduceOp, hosts[0], host, size_) : nullptr;
    return collective(
        OpType::REDUCE, tensors[0], tensors[0], of_one(options.rootRank, tensors[0]), root ? to_each(tensors[0]) : none(),
        tensors, [hosts, inner, gloo = gloo_]() mutable { return gloo->reduce(hosts, inner); },
        {number(options.reduceOp), options.rootRank, rest, root});
  }
  WorkPtr allgather(
      std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    auto& mine = outputs.at(0);
    check_moved(name_, inputs);
    check_piece(mine, rank_, inputs.at(0));
    std::vector<Tensors> hosts{each_bytes(mine)};
    Tensors sources = each_bytes(inputs);
    auto start = [hosts, sources, options, gloo = gloo_]() mutable {
      if (equal_sizes(hosts[0])) return gloo->allgather(hosts, sources, options);
      hosts[0][static_cast<size_t>(gloo->getRank())].copy_(sources[0]);
      WorkPtr last;
      for (int rank = 0; rank < gloo->getSize(); rank++) {
        if (last) last->wait();
        Tensors one{hosts[0][static_cast<size_t>(rank)]};
        c10d::BroadcastOptions from;
        from.rootRank = rank;
        last = gloo->broadcast(one, from);
      }
      return last;
    };
    return collective(OpType::ALLGATHER, inputs[0], mine[0], to_each(inputs[0]), of_each(mine), mine, start);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    DeviceWorkGuard inside;
    check_moved(name_, {input});
    check_whole(name_, output, input, size_);
    auto to = bytes(output);
    // The input may be a piece of the output.
    auto from = input.is_alias_of(output) ? bytes(input).clone() : bytes(input);
    return collective(
        OpType::_ALLGATHER_BASE, input, output, to_each(input), to_each(input), {output},
        [to, from, options, gloo = gloo_]() mutable { return gloo->_allgather_base(to, from, options); });
  }
  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    SimWork::Works parts;
    for (size_t i = 0; i < inputs.size(); i++) parts.push_back(_allgather_base(outputs[i], inputs[i], options));
    return started(OpType::COALESCED, std::move(parts), outputs);
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    check_moved(name_, inputs);
    const bool takes_complex = !find(name_, inputs.at(0)).plain || !inputs[0].is_complex();
    TORCH_CHECK(takes_complex, "Unsupported data type for HCCL process group");
    check_alike("gather", outputs, inputs.at(0));
    std::vector<Tensors> hosts;
    for (const auto& list : outputs) hosts.push_back(each_bytes(list));
    auto sources = each_bytes(inputs);
    const auto to = outputs.empty() ? Tensors() : outputs[0];
    return collective(
        OpType::GATHER, inputs[0], inputs[0], of_one(options.rootRank, inputs[0]), to.empty() ? none() : of_each(to), to,
        [hosts, sources, options, gloo = gloo_]() mutable { return gloo->gather(hosts, sources, options); },
        {.root = options.rootRank});
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override {
    check_moved(name_, outputs);
    check_alike("scatter", inputs, outputs.at(0));
    std::vector<Tensors> sources;
    for (const auto& list : inputs) sources.push_back(each_bytes(list));
    auto hosts = each_bytes(outputs);
    return collective(
        OpType::SCATTER, outputs[0], outputs[0], inputs.empty() ? none() : of_each(inputs[0]),
        of_one(options.rootRank, outputs[0]), outputs,
        [hosts, sources, options, gloo = gloo_]() mutable { return gloo->scatter(hosts, sources, options); },
        {.root = options.rootRank});
  }
  // An all-reduce of all parts, of which this rank keeps its own: sizes may differ.
  WorkPtr reduce_scatter(
      Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) override {
    DeviceWorkGuard inside;
    check_reduced(name_, "reduce_scatter", outputs.at(0), options.reduceOp);
    check_piece(inputs.at(0), rank_, outputs[0]);
    Tensors pieces;
    for (const auto& input : inputs[0]) pieces.push_back(addable(input));
    Tensors hosts{summand(at::cat(pieces), options.reduceOp)};
    int64_t at = 0;
    for (int rank = 0; rank < rank_; rank++) at += pieces[static_cast<size_t>(rank)].numel();
    auto to = addable(outputs[0]);
    const auto mine = hosts[0].narrow(0, at, to.numel());
    c10d::AllreduceOptions all;
    all.reduceOp = on_gloo(options.reduceOp, outputs[0].scalar_type());
    all.timeout = options.timeout;
    auto rest = completion(options.reduceOp, mine, to, size_);
    return collective(
        OpType::REDUCE_SCATTER, inputs[0][0], outputs[0], of_each(inputs[0]), to_each(outputs[0]), outputs,
        [hosts, all, gloo = gloo_]() mutable { return gloo->allreduce(hosts, all); },
        {.operation = number(options.reduceOp), .finish = std::move(rest)});
  }
  WorkPtr _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    check_whole(name_, input, output, size_);
    std::vector<Tensors> lists{flat(input).chunk(size_)};
    Tensors outputs{output};
    return reduce_scatter(outputs, lists, options);
  }
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override {
    SimWork::Works parts;
    for (size_t i = 0; i < inputs.size(); i++) parts.push_back(_reduce_scatter_base(outputs[i], inputs[i], options));
    return started(OpType::COALESCED, std::move(parts), outputs);
  }
  WorkPtr alltoall_base(
      at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes, std::vector<int64_t>& input_sizes,
      const c10d::AllToAllOptions& options) override {
    check_moved(name_, {input, output});
    auto to = bytes(output), from = bytes(input);
    // gloo takes the sizes away from its caller: these are copies.
    auto to_sizes = byte_splits(output_sizes, output, size_), from_sizes = byte_splits(input_sizes, input, size_);
    return collective(
        OpType::ALLTOALL_BASE, input, output, from_sizes, to_sizes, {output},
        [=, gloo = gloo_]() mutable { return gloo->alltoall_base(to, from, to_sizes, from_sizes, options); });
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    DeviceWorkGuard inside;
    check_moved(name_, inputs);
    auto hosts = each_bytes(outputs);
    auto from = at::cat(each_bytes(inputs));
    std::vector<int64_t> to_sizes, from_sizes;
    int64_t total = 0;
    for (const auto& host : hosts) total += to_sizes.emplace_back(host.numel());
    for (const auto& input : inputs) from_sizes.push_back(static_cast<int64_t>(input.nbytes()));
    auto to = at::empty({total}, at::TensorOptions().dtype(at::kByte));
    return collective(
        OpType::ALLTOALL, inputs.at(0), outputs.at(0), from_sizes, to_sizes, outputs,
        [=, gloo = gloo_]() mutable { return gloo->alltoall_base(to, from, to_sizes, from_sizes, options); },
        {.finish = [to, hosts] { copy_pieces(to, hosts); }});
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override {
    check_moved(name_, tensors);
    auto part = agreement_.send(bytes(tensors.at(0)), tensors[0].scalar_type(), to, tag);
    return started(OpType::SEND, {part}, tensors, nullptr, /*writes=*/false);
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    check_moved(name_, tensors);
    return started(OpType::RECV, {agreement_.receive(bytes(tensors.at(0)), tensors[0].scalar_type(), from, tag)}, tensors);
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    auto part = agreement_.receive(bytes(tensors.at(0)), tensors[0].scalar_type(), -1, tag);
    return started(OpType::RECVANYSOURCE, {part}, tensors);
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    const at::Tensor nothing;
    return collective(
        OpType::BARRIER, nothing, nothing, none(), none(), {}, [options, gloo = gloo_] { return gloo->barrier(options); });
  }

 private:
  using Sizes = std::vector<int64_t>;
  using Start = std::function<WorkPtr()>;
  Sizes none() const { return Sizes(static_cast<size_t>(size_)); }
  Sizes to_each(const at::Tensor& tensor) const {
    return Sizes(static_cast<size_t>(size_), static_cast<int64_t>(tensor.nbytes()));
  }
  Sizes of_one(int64_t rank, const at::Tensor& tensor) const {
    TORCH_CHECK(rank >= 0 && rank < size_, "no rank ", rank, " in a group of ", size_);
    auto sizes = none();
    sizes[static_cast<size_t>(rank)] = static_cast<int64_t>(tensor.nbytes());
    return sizes;
  }
  static Sizes of_each(const Tensors& tensors) {
    Sizes sizes;
    for (const auto& tensor : tensors) sizes.push_back(static_cast<int64_t>(tensor.nbytes()));
    return sizes;
  }
  static int64_t number(const ReduceOp& op) { return static_cast<int64_t>(op.op_); }
  // What gloo does by `start`, once all ranks have called the same. given, taken: for their dtypes.
  WorkPtr collective(
      OpType type, const at::Tensor& given, const at::Tensor& taken, Sizes gives, Sizes takes, const Tensors& outputs,
      Start start, Rest rest = {}) {
    const auto dtype = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.scalar_type() : at::kByte; };
    auto part = agreement_.collective(
        {type, dtype(given), dtype(taken), rest.operation, rest.root, std::move(gives), std::move(takes)},
        std::move(start));
    return started(type, {part}, outputs, std::move(rest.finish), rest.writes);
  }
  WorkPtr started(
      c10d::OpType type, SimWork::Works parts, Tensors outputs, std::function<void()> finish = nullptr,
      bool writes = true) {
    const auto sim_work = c10::make_intrusive<SimWork>(type, std::move(parts), outputs, std::move(finish));
    if (order().watching()) collective_started(*sim_work, name_, streams_, writes ? outputs : Tensors());
    auto work = track(sim_work);
    if (coalescing_) coalesced_.push_back(work);
    return work;
  }
  WorkPtr one_reduction(at::Tensor& tensor, const c10d::ReduceOp& op, std::chrono::milliseconds timeout) {
    DeviceWorkGuard inside;
    check_reduced(name_, "allreduce", tensor, op);
    const auto host = addable(tensor);
    Tensors hosts{summand(host, op)};
    c10d::AllreduceOptions options;
    options.reduceOp = on_gloo(op, tensor.scalar_type());
    options.timeout = timeout;
    return collective(
        OpType::ALLREDUCE, tensor, tensor, to_each(tensor), to_each(tensor), {tensor},
        [hosts, options, gloo = gloo_]() mutable { return gloo->allreduce(hosts, options); },
        {.operation = number(op), .finish = completion(op, hosts[0], host, size_)});
  }

  c10::intrusive_ptr<c10d::Backend> gloo_;
  std::string name_;
  Agreement agreement_;
  bool coalescing_ = false;
  SimWork::Works coalesced_;
  GroupStreams streams_;
};

// torch has kernels of its collectives for CPU, CUDA and PrivateUse1. hpu and xpu, whose real runtimes have their own,
// use those of PrivateUse1, which take the group's backend for PrivateUse1: set the device's own. There are none for mps.
void set_privateuse1_backend(const c10::IValue& value) {
  if (!value.isObject()) return;
  const auto group = value.toCustomClass<ProcessGroup>();
  for (const auto& device : group->getDeviceTypes()) { if (device == c10::DeviceType::PrivateUse1) return; }
  group->setBackend(
      c10::DeviceType::PrivateUse1, ProcessGroup::BackendType::CUSTOM, group->getBackend(config().type));
}

void redispatch_to_privateuse1(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); i++) {
    const auto& value = (*stack)[stack->size() - arguments.size() + i];
    if (arguments[i].name() == "process_group") set_privateuse1_backend(value);
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), stack);
}

// DistributedDataParallel asks for a clock of CUDA; work is done when a call returns, so the host's is right.
void register_timer() {
  auto* registry = c10d::TimerRegistry();
  if (config().type != c10::DeviceType::CUDA || registry->Has(c10::DeviceType::CUDA)) return;
  registry->Register(c10::DeviceType::CUDA, [](c10::Device device) {
    return c10d::TimerRegistry()->Create(c10::DeviceType::CPU, device);
  });
}

} // namespace

void finish_collectives() {
  if (deferring()) return;  // what the host has waited for is carried out already
  std::deque<c10::intrusive_ptr<SimWork>> all;
  {
    std::lock_guard<std::mutex> lock(pending().mutex);
    all.swap(pending().works);
  }
  for (auto& work : all) work->run_to_end();
}

void check_whole(const std::string& name, const at::Tensor& whole, const at::Tensor& part, int size) {
  const auto rules = find(name, whole);
  const bool same = whole.scalar_type() == part.scalar_type();
  constexpr auto kType = "output tensor must have the same type as input tensor";
  TORCH_CHECK(same || !rules.plain, kType);
  TORCH_CHECK_TYPE(same, kType);
  check_value(
      rules, whole.numel() == part.numel() * size,
      "input and output tensor must differ in size by the factor world_size, found ", whole.sizes(), " and ",
      part.sizes(), " with ", size, " ranks");
}

c10::intrusive_ptr<c10d::Backend> make_backend(c10::intrusive_ptr<c10d::Backend> gloo, std::string name) {
  return c10::make_intrusive<SimBackend>(std::move(gloo), std::move(name));
}

void register_collectives() {
  if (config().type == c10::DeviceType::MPS) return;
  register_timer();
  auto& kernels = library(config().key, "c10d");
  each_operator("c10d", [&](const std::string& name, const c10::OperatorHandle& op) {
    if (!op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) return;
    if (op.hasKernelForDispatchKey(config().key)) return;
    kernels.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&redispatch_to_privateuse1>());
  });
}

} // namespace accel_sim
