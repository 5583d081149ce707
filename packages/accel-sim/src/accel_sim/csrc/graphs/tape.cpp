// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Recorded work: what it needs to be done again.
#include "aten/aten.h"
#include "graphs/graphs.h"

#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <unordered_set>

namespace accel_sim {

namespace {

using torch::jit::Stack;

constexpr size_t kHost = static_cast<size_t>(-1);     // a host tensor, kept as it is
constexpr size_t kNothing = static_cast<size_t>(-2);  // a device tensor without elements

const c10::Storage& nothing() {
  static auto* storage = new c10::Storage(
      c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU)),
      c10::GetCPUAllocator(), /*resizable=*/true);
  return *storage;
}

c10::Storage empty_on(c10::DeviceIndex index) {
  return c10::Storage(
      c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, c10::Device(config().type, index)), allocator(),
      /*resizable=*/true);
}

} // namespace

bool Tape::owns(const c10::StorageImpl& storage) const {
  const auto* block = block_of(storage);
  return block == nullptr || block->id >= first_block_;
}

size_t Tape::place_of(const at::Tensor& tensor) {
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

at::Tensor Tape::remove_memory(const at::Tensor& tensor, Node& node) {
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

void Tape::record(const Work& work, const Stack& results) {
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

void Tape::poison() {
  for (const auto& place : places_) {
    if (place.block < first_block_) continue;
    auto* impl = place.own.unsafeGetStorageImpl();
    if (impl->data() == place.data) std::memset(place.data, 0xFF, impl->nbytes());
  }
}

std::vector<c10::Storage> Tape::memory() const {
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

void Tape::replay() const {
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

} // namespace accel_sim
