// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Operators that allocate, change a storage or cross devices.
#include "aten/aten.h"
#include "graphs/capture.h"
#include "order/deferred.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/copy.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

namespace accel_sim {

namespace {

c10::Device target(std::optional<c10::Device> device) {
  const auto index = index_of(device.value_or(c10::Device(config().type)));
  check_device(index);
  return {config().type, index};
}

void refuse_pinned(std::optional<bool> pin) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
}

at::Tensor empty(
    c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<c10::Device> device, std::optional<bool> pin, std::optional<c10::MemoryFormat> format) {
  refuse_pinned(pin);
  const c10::DeviceGuard guard(target(device));
  return at::Tensor(at::detail::empty_generic(
      C10_AS_INTARRAYREF_SLOW(size), allocator(), c10::DispatchKeySet(config().key), c10::dtype_or_default(dtype), format));
}

at::Tensor empty_strided(
    c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>, std::optional<c10::Device> device, std::optional<bool> pin) {
  refuse_pinned(pin);
  const c10::DeviceGuard guard(target(device));
  return at::Tensor(at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), allocator(), c10::DispatchKeySet(config().key),
      c10::dtype_or_default(dtype)));
}

at::Tensor efficient_zero(
    c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<c10::Device> device, std::optional<bool>) {
  static auto* nothing = [] {
    struct ZeroAllocator final : c10::Allocator {
      c10::DataPtr allocate(size_t) override { return {nullptr, c10::Device(config().type, current_device())}; }
      void copy_data(void*, const void*, size_t) const override {}
    };
    return new ZeroAllocator();
  }();
  const c10::DeviceGuard guard(target(device));
  auto keys = c10::DispatchKeySet(config().key) | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  return at::Tensor(at::detail::empty_generic(
      C10_AS_INTARRAYREF_SLOW(size), nothing, keys, c10::dtype_or_default(dtype), std::nullopt));
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.is_same(source)) return self;
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  torch::jit::Stack stack{self, source, non_blocking};
  run_observed(op, &stack, &run_copy);
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool non_blocking) {
  auto target = to;
  copy_(target, self, non_blocking);
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  auto target = to;
  target.resize_(self.sizes());
  copy_(target, self, false);
  return target;
}

at::Tensor& set_storage(
    at::Tensor& self, c10::Storage source, c10::SymInt offset, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  TORCH_CHECK(
      source.device() == self.device(), "Attempted to set the storage of a tensor on device \"", self.device(),
      "\" to a storage on different device \"", source.device(), "\"");
  auto* impl = self.unsafeGetTensorImpl();
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  const auto first = offset.guard_int(__FILE__, __LINE__);
  std::vector<int64_t> strides(sizes.size());
  if (stride.size() == sizes.size() && !stride.empty()) {
    const auto given = C10_AS_INTARRAYREF_SLOW(stride);
    strides.assign(given.begin(), given.end());
  } else {
    int64_t step = 1;
    for (size_t i = sizes.size(); i-- > 0; step *= std::max<int64_t>(sizes[i], 1)) strides[i] = step;
  }
  const auto needed = at::detail::computeStorageNbytes(sizes, strides, self.dtype().itemsize(), first);
  if (needed > source.nbytes()) resize(source, needed);
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_sizes_and_strides(sizes, strides, first);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, c10::Storage source) {
  const auto size = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  const c10::SymInt count(size), step(1);
  return set_storage(self, std::move(source), 0, {count}, {step});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) return self;
  return set_storage(self, source.storage(), source.sym_storage_offset(), source.sym_sizes(), source.sym_strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  c10::Storage none(
      c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, self.device()), allocator(), /*resizable=*/true);
  const c10::SymInt zero(0), one(1);
  return set_storage(self, std::move(none), 0, {zero}, {one});
}

void use_on_stream(at::Tensor& self, c10::Stream stream) {
  TORCH_CHECK(is_simulated(self), "record_stream needs a tensor on ", config().name, ", found ", self.device());
  record_stream(self.storage().data_ptr(), stream);
}

// Without it module.to(device) would make new Parameters, and an optimizer made before would train nothing.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto dense = [](const at::Tensor& t) { return is_simulated(t) || t.device().is_cpu(); };
  return dense(self) && dense(from) && self.layout() == from.layout();
}

} // namespace

void run_copy(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  auto arguments = torch::jit::pop(*stack, 3);
  const auto& self = arguments[0].toTensor();
  const auto& source = arguments[1].toTensor();
  stack->push_back(self);
  if (deferring() && !is_recorded_only() && defer_copy(self, source, arguments[2].toBool())) return;
  at::AutoDispatchBelowADInplaceOrView below;
  Aliases aliases;
  const auto to = is_simulated(self) ? aliases.to_host(self) : self;
  const auto from = is_simulated(source) ? aliases.to_host(source) : source;
  if (is_simulated(self) || !is_recorded_only()) to.copy_(from, false);
}

void register_kernels() {
  auto* library = new torch::Library(
      torch::Library::IMPL, "aten", std::make_optional(config().key), __FILE__, __LINE__);  // never unloaded
  library->impl("empty.memory_format", &empty);
  library->impl("empty_strided", &empty_strided);
  library->impl("_efficientzerotensor", &efficient_zero);
  library->impl("copy_", &copy_);
  library->impl("_copy_from", &copy_from);
  library->impl("_copy_from_and_resize", &copy_from_and_resize);
  library->impl("set_.source_Storage", &set_whole_storage);
  library->impl("set_.source_Storage_storage_offset", &set_storage);
  library->impl("set_.source_Tensor", &set_tensor);
  library->impl("set_", &set_empty);
  library->impl("record_stream", &use_on_stream);
  library->impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
}

} // namespace accel_sim
