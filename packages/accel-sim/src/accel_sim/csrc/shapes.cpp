// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Operators that compute nothing: their meta kernels give the shapes of the results.
#include "aten.h"
#include "hooks.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>

namespace accel_sim {

namespace {

// The meta tensors of one call, and the way back.
class Shapes {
 public:
  explicit Shapes(c10::Device device) : device_(device) {}
  at::Tensor to_meta(const at::Tensor& real);
  at::Tensor from_meta(const at::Tensor& meta);
  void write_back();

 private:
  struct Pair {
    at::Tensor meta, real;
  };
  struct StoragePair {
    c10::Storage meta, real;
    size_t bytes;
  };
  static c10::Allocator* allocator_of(const c10::Device& device) {
    return device.is_cpu() ? c10::GetCPUAllocator() : allocator();
  }
  c10::Device device_;
  c10::SmallVector<Pair, 4> tensors_;
  c10::SmallVector<StoragePair, 4> storages_;
};

at::Tensor Shapes::to_meta(const at::Tensor& real) {
  // Scalars stay as they are: a meta kernel mixes them with meta tensors, and reads some.
  if (!real.defined() || real.is_meta() || (real.is_cpu() && real.dim() == 0)) return real;
  for (auto& known : tensors_) {
    if (known.real.is_same(real)) return known.meta;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      real.has_storage() && real.layout() == c10::kStrided && !real.is_quantized(), "no shapes of a tensor that is not dense");
  StoragePair* mine = nullptr;
  for (auto& known : storages_) {
    if (known.real.is_alias_of(real.storage())) mine = &known;
  }
  if (!mine) {
    const auto bytes = real.storage().nbytes();
    c10::DataPtr nothing(nullptr, c10::Device(c10::DeviceType::Meta));
    auto meta = make_storage(std::move(nothing), bytes, c10::GetAllocator(c10::DeviceType::Meta));
    storages_.push_back({std::move(meta), real.storage(), bytes});
    mine = &storages_.back();
  }
  auto meta = with_metadata_of(real, mine->meta, c10::DispatchKey::Meta);
  tensors_.push_back({meta, real});
  return meta;
}

at::Tensor Shapes::from_meta(const at::Tensor& meta) {
  if (!meta.defined() || !meta.is_meta()) return meta;
  for (auto& known : tensors_) {
    if (known.meta.is_same(meta)) return known.real;
  }
  const auto key = device_.is_cpu() ? c10::DispatchKey::CPU : config().key;
  for (auto& known : storages_) {
    if (known.meta.is_alias_of(meta.storage())) return with_metadata_of(meta, known.real, key);
  }
  const auto bytes = meta.storage().nbytes();
  auto* from = allocator_of(device_);
  std::optional<c10::DeviceGuard> guard;
  if (!device_.is_cpu()) guard.emplace(device_);
  auto storage = make_storage(from->allocate(bytes), bytes, from);
  storages_.push_back({meta.storage(), storage, bytes});
  return with_metadata_of(meta, std::move(storage), key);
}

// Carries sizes that the call changed back to the real tensors.
void Shapes::write_back() {
  for (auto& known : storages_) {
    const auto bytes = known.meta.nbytes();
    if (bytes == known.bytes) continue;
    if (known.real.device().is_cpu()) {
      auto* impl = known.real.unsafeGetStorageImpl();
      impl->set_data_ptr_noswap(c10::GetCPUAllocator()->allocate(bytes));
      impl->set_nbytes(bytes);
    } else {
      resize(known.real, bytes);
    }
  }
  for (auto& known : tensors_) set_shape(known.real, known.meta);
}

} // namespace

std::optional<c10::Device> device_of_results(const c10::OperatorHandle& op, const Stack& stack) {
  std::optional<c10::Device> found;
  for (const auto& value : arguments_of(op, stack)) {
    if (value.isDevice()) {
      if (!is_simulated(value.toDevice())) return std::nullopt;  // the result is on the host
      found = c10::Device(config().type, index_of(value.toDevice()));
    }
    each_tensor(value, [&](const at::Tensor& tensor) {
      if (!found && is_simulated(tensor)) found = tensor.device();
    });
  }
  return found;
}

bool run_shapes(const c10::OperatorHandle& op, Stack* stack, c10::Device device) {
  const auto count = op.schema().arguments().size();
  if (op.operator_name().name == "aten::equal") {
    torch::jit::drop(*stack, count);
    stack->emplace_back(true);
    return true;
  }
  Shapes shapes(device);
  Stack inner(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  try {
    for (auto& value : inner) {
      if (value.isDevice()) {
        value = c10::Device(c10::DeviceType::Meta);
      } else if (value.isGenerator()) {
        value = c10::IValue();
      } else {
        change_tensors(value, [&](const at::Tensor& item) { return shapes.to_meta(item); });
      }
    }
    at::AutoDispatchBelowADInplaceOrView below;
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &inner);
  } catch (const std::exception&) {
    if (auto* run = dry_run()) run->computed(op);
    return false;
  }
  shapes.write_back();
  torch::jit::drop(*stack, count);
  for (auto& value : inner) {
    change_tensors(value, [&](const at::Tensor& item) { return shapes.from_meta(item); });
    stack->push_back(std::move(value));
  }
  return true;
}

} // namespace accel_sim
