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

// Meta tensors, which have shapes and no numbers.
class MetaAliases final : public Aliases {
 public:
  MetaAliases() : Aliases(c10::DispatchKey::Meta) {}

 private:
  c10::Storage make_alias(const c10::Storage& real) override {
    c10::DataPtr nothing(nullptr, c10::Device(c10::DeviceType::Meta));
    return make_storage(std::move(nothing), real.nbytes(), c10::GetAllocator(c10::DeviceType::Meta));
  }
  c10::Storage make_real(const at::Tensor& alias, c10::Device device) override {
    const auto bytes = alias.storage().nbytes();
    auto* from = device.is_cpu() ? c10::GetCPUAllocator() : allocator();
    std::optional<c10::DeviceGuard> guard;
    if (!device.is_cpu()) guard.emplace(device);
    return make_storage(from->allocate(bytes), bytes, from);
  }
  void write_back_storage(AliasedStorage& changed) override {
    const auto bytes = changed.alias.nbytes();
    if (!changed.real.device().is_cpu()) return resize(changed.real, bytes);
    auto* impl = changed.real.unsafeGetStorageImpl();
    impl->set_data_ptr_noswap(c10::GetCPUAllocator()->allocate(bytes));
    impl->set_nbytes(bytes);
  }
};

at::Tensor to_meta(Aliases& aliases, const at::Tensor& real) {
  // Scalars stay as they are: a meta kernel mixes them with meta tensors, and reads some.
  if (!real.defined() || real.is_meta() || (real.is_cpu() && real.dim() == 0)) return real;
  TORCH_CHECK_NOT_IMPLEMENTED(
      real.layout() == c10::kStrided && !real.is_quantized(), "no shapes of a tensor that is not dense");
  return aliases.to_alias(real);
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
  MetaAliases aliases;
  Stack inner(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  try {
    for (auto& value : inner) {
      if (value.isDevice()) {
        value = c10::Device(c10::DeviceType::Meta);
      } else if (value.isGenerator()) {
        value = c10::IValue();
      } else {
        change_tensors(value, [&](const at::Tensor& item) { return to_meta(aliases, item); });
      }
    }
    at::AutoDispatchBelowADInplaceOrView below;
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &inner);
  } catch (const std::exception&) {
    if (auto* run = dry_run()) run->computed(op);
    return false;
  }
  aliases.write_back();
  torch::jit::drop(*stack, count);
  for (auto& value : inner) {
    change_tensors(value, [&](const at::Tensor& item) { return aliases.to_real(item, device); });
    stack->push_back(std::move(value));
  }
  return true;
}

} // namespace accel_sim
