// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "aten/aten.h"
#include "distributed/backend.h"
#include "distributed/rules.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

namespace accel_sim {

namespace {

using c10d::OpType;
using c10d::ReduceOp;

at::Tensor flat(const at::Tensor& tensor) {
  const bool contiguous = tensor.is_contiguous(tensor.suggest_memory_format());
  if (!contiguous) discard_prepared();
  TORCH_CHECK(contiguous, "Tensors must be contiguous");
  const auto host = host_alias(tensor);
  const auto row = host.as_strided({host.numel()}, {1}, host.storage_offset());
  return order_enabled() ? prepare_tensor(tensor, row) : row;
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
  return op == ReduceOp::AVG ? ReduceOp(ReduceOp::SUM) : op;
}

// gloo has no average: a sum, then a division by the size of the group.
std::function<void()> division(const ReduceOp& op, Tensors hosts, int size) {
  if (op != ReduceOp::AVG) return nullptr;
  return [hosts = std::move(hosts), size] {
    for (const auto& host : hosts) {
      if (host.is_floating_point()) {
        at::Tensor(host).div_(size);
      } else {
        at::Tensor(host).div_(size, "floor");
      }
    }
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
  for (const auto& tensor : tensors) {
    if (tensor.numel() != tensors[0].numel()) return false;
  }
  return true;
}

} // namespace

SimBackend::SimBackend(c10::intrusive_ptr<c10d::Backend> gloo, std::string name)
    : c10d::Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)), name_(std::move(name)) {}

c10::intrusive_ptr<c10d::Backend::Options> SimBackend::getBackendOptions() {
  return c10::make_intrusive<Options>(name_, gloo_->getBackendOptions()->timeout);
}

WorkPtr SimBackend::started(
    OpType type, SimWork::Works parts, Tensors outputs, std::function<void()> finish, bool writes) {
  const auto sim_work = c10::make_intrusive<SimWork>(type, std::move(parts), outputs, std::move(finish));
  if (order_enabled()) collective_started(*sim_work, name_, streams_, writes ? outputs : Tensors());
  auto work = track(sim_work);
  if (coalescing_) coalesced_.push_back(work);
  return work;
}

void SimBackend::startCoalescing() {
  coalescing_ = true;
  coalesced_.clear();
}

WorkPtr SimBackend::endCoalescing() {
  coalescing_ = false;
  return started(OpType::COALESCED, std::exchange(coalesced_, {}), {});
}

WorkPtr SimBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  check_moved(name_, tensors);
  auto hosts = each_bytes(tensors);
  return started(OpType::BROADCAST, {gloo_->broadcast(hosts, options)}, tensors);
}

WorkPtr SimBackend::one_reduction(at::Tensor& tensor, const ReduceOp& op, std::chrono::milliseconds timeout) {
  check_reduced(name_, tensor, op);
  Tensors hosts{addable(tensor)};
  c10d::AllreduceOptions options;
  options.reduceOp = on_gloo(op, tensor.scalar_type());
  options.timeout = timeout;
  auto part = gloo_->allreduce(hosts, options);
  return started(OpType::ALLREDUCE, {part}, {tensor}, division(op, hosts, size_));
}

WorkPtr SimBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  TORCH_CHECK(tensors.size() == 1, "a process has one tensor in an all_reduce, found ", tensors.size());
  return one_reduction(tensors[0], options.reduceOp, options.timeout);
}

WorkPtr SimBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  SimWork::Works parts;
  for (auto& tensor : tensors) parts.push_back(one_reduction(tensor, options.reduceOp, options.timeout));
  return started(OpType::ALLREDUCE_COALESCED, std::move(parts), tensors);
}

// Only the root's tensor may change; gloo uses the others as scratch memory.
WorkPtr SimBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  check_reduced(name_, tensors.at(0), options.reduceOp);
  const auto host = addable(tensors[0]);
  const bool root = options.rootRank == rank_;
  Tensors hosts{root ? host : host.clone()};
  auto inner = options;
  inner.reduceOp = on_gloo(options.reduceOp, tensors[0].scalar_type());
  auto divide = root ? division(options.reduceOp, hosts, size_) : nullptr;
  return started(OpType::REDUCE, {gloo_->reduce(hosts, inner)}, tensors, divide, root);
}

WorkPtr SimBackend::allgather(
    std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  auto& mine = outputs.at(0);
  check_moved(name_, inputs);
  check_piece(mine, rank_, inputs.at(0));
  if (equal_sizes(mine)) {
    std::vector<Tensors> hosts{each_bytes(mine)};
    auto sources = each_bytes(inputs);
    return started(OpType::ALLGATHER, {gloo_->allgather(hosts, sources, options)}, mine);
  }
  SimWork::Works parts;
  for (int rank = 0; rank < size_; rank++) {
    Tensors hosts{bytes(mine[static_cast<size_t>(rank)])};
    if (rank == rank_) hosts[0].copy_(bytes(inputs.at(0)));
    c10d::BroadcastOptions from;
    from.rootRank = rank;
    parts.push_back(gloo_->broadcast(hosts, from));
  }
  return started(OpType::ALLGATHER, std::move(parts), mine);
}

WorkPtr SimBackend::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  check_moved(name_, {input});
  check_whole(output, input, size_);
  auto to = bytes(output);
  // The input may be a piece of the output.
  auto from = input.is_alias_of(output) ? bytes(input).clone() : bytes(input);
  return started(OpType::_ALLGATHER_BASE, {gloo_->_allgather_base(to, from, options)}, {output});
}

WorkPtr SimBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  SimWork::Works parts;
  for (size_t i = 0; i < inputs.size(); i++) parts.push_back(_allgather_base(outputs[i], inputs[i], options));
  return started(OpType::COALESCED, std::move(parts), outputs);
}

WorkPtr SimBackend::gather(
    std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  check_moved(name_, inputs);
  check_alike("gather", outputs, inputs.at(0));
  std::vector<Tensors> hosts;
  for (const auto& list : outputs) hosts.push_back(each_bytes(list));
  auto sources = each_bytes(inputs);
  const auto to = outputs.empty() ? Tensors() : outputs[0];
  return started(OpType::GATHER, {gloo_->gather(hosts, sources, options)}, to);
}

WorkPtr SimBackend::scatter(
    Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  check_moved(name_, outputs);
  check_alike("scatter", inputs, outputs.at(0));
  std::vector<Tensors> sources;
  for (const auto& list : inputs) sources.push_back(each_bytes(list));
  auto hosts = each_bytes(outputs);
  return started(OpType::SCATTER, {gloo_->scatter(hosts, sources, options)}, outputs);
}

// An all-reduce of all parts, of which this rank keeps its own: sizes may differ.
WorkPtr SimBackend::reduce_scatter(
    Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) {
  check_reduced(name_, outputs.at(0), options.reduceOp);
  check_piece(inputs.at(0), rank_, outputs[0]);
  Tensors pieces;
  for (const auto& input : inputs[0]) pieces.push_back(addable(input));
  Tensors hosts{at::cat(pieces)};
  int64_t at = 0;
  for (int rank = 0; rank < rank_; rank++) at += pieces[static_cast<size_t>(rank)].numel();
  auto to = addable(outputs[0]);
  const auto mine = hosts[0].narrow(0, at, to.numel());
  c10d::AllreduceOptions all;
  all.reduceOp = on_gloo(options.reduceOp, outputs[0].scalar_type());
  all.timeout = options.timeout;
  auto divide = division(options.reduceOp, {to}, size_);
  return started(OpType::REDUCE_SCATTER, {gloo_->allreduce(hosts, all)}, outputs, [to, mine, divide]() mutable {
    to.copy_(mine);
    if (divide) divide();
  });
}

WorkPtr SimBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  check_whole(input, output, size_);
  std::vector<Tensors> lists{flat(input).chunk(size_)};
  Tensors outputs{output};
  return reduce_scatter(outputs, lists, options);
}

WorkPtr SimBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  SimWork::Works parts;
  for (size_t i = 0; i < inputs.size(); i++) parts.push_back(_reduce_scatter_base(outputs[i], inputs[i], options));
  return started(OpType::COALESCED, std::move(parts), outputs);
}

WorkPtr SimBackend::alltoall_base(
    at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes, std::vector<int64_t>& input_sizes,
    const c10d::AllToAllOptions& options) {
  check_moved(name_, {input, output});
  auto to = bytes(output), from = bytes(input);
  // gloo takes the sizes away from its caller: these are copies.
  auto to_sizes = byte_splits(output_sizes, output, size_), from_sizes = byte_splits(input_sizes, input, size_);
  return started(
      OpType::ALLTOALL_BASE, {gloo_->alltoall_base(to, from, to_sizes, from_sizes, options)}, {output});
}

WorkPtr SimBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  check_moved(name_, inputs);
  auto hosts = each_bytes(outputs);
  auto from = at::cat(each_bytes(inputs));
  std::vector<int64_t> to_sizes, from_sizes;
  int64_t total = 0;
  for (const auto& host : hosts) total += to_sizes.emplace_back(host.numel());
  for (const auto& input : inputs) from_sizes.push_back(static_cast<int64_t>(input.nbytes()));
  auto to = at::empty({total}, at::TensorOptions().dtype(at::kByte));
  auto part = gloo_->alltoall_base(to, from, to_sizes, from_sizes, options);
  return started(OpType::ALLTOALL, {part}, outputs, [to, hosts] { copy_pieces(to, hosts); });
}

WorkPtr SimBackend::send(Tensors& tensors, int to, int tag) {
  check_moved(name_, tensors);
  auto hosts = each_bytes(tensors);
  return started(OpType::SEND, {gloo_->send(hosts, to, tag)}, tensors, nullptr, /*writes=*/false);
}

WorkPtr SimBackend::recv(Tensors& tensors, int from, int tag) {
  check_moved(name_, tensors);
  auto hosts = each_bytes(tensors);
  return started(OpType::RECV, {gloo_->recv(hosts, from, tag)}, tensors);
}

WorkPtr SimBackend::recvAnysource(Tensors& tensors, int tag) {
  auto hosts = each_bytes(tensors);
  return started(OpType::RECVANYSOURCE, {gloo_->recvAnysource(hosts, tag)}, tensors);
}

WorkPtr SimBackend::barrier(const c10d::BarrierOptions& options) {
  return started(OpType::BARRIER, {gloo_->barrier(options)}, {});
}

} // namespace accel_sim
