// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Operators that every backend has to write: memory, copies, and views; one kernel of the device; CPU for the rest.
#include "device.h"
#include "driver.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

namespace acme {

namespace {

using at::Tensor;

c10::Device chosen(std::optional<c10::Device> device) {
  return device && device->has_index() ? *device : c10::Device(kType, current_device());
}

Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
             std::optional<c10::Device> device, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  const c10::DeviceGuard guard(chosen(device));
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(size, allocator(), keys, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                     std::optional<c10::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(chosen(device));
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(size, stride, allocator(), keys, c10::dtype_or_default(dtype));
}

// From the first element of a tensor to its last, with the gaps that its strides leave.
size_t span(const Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
}

// A host tensor of the same strides; the caller has a tensor of the device.
Tensor to_host(const Tensor& tensor) {
  auto host = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kCPU));
  acme_copy(host.mutable_data_ptr(), tensor.const_data_ptr(), span(tensor));
  return host;
}

// What copy_() calls when one of the two is on the device. Types and strides are changed on the host.
Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  const bool alike = from.dtype() == to.dtype() && from.sizes() == to.sizes() && from.strides() == to.strides();
  if (alike && from.is_non_overlapping_and_dense() && from.is_conj() == to.is_conj() && from.is_neg() == to.is_neg()) {
    acme_copy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
    return to;
  }
  const auto source = from.is_cpu() ? from : to_host(from);
  if (to.is_cpu()) return to.copy_(source);
  auto target = to_host(to);
  target.copy_(source);
  acme_copy(to.mutable_data_ptr(), target.const_data_ptr(), span(to));
  return to;
}

// torch's own code for these two allocates on the current device, whichever the tensor is on.
const Tensor& resize(const Tensor& self, c10::IntArrayRef size, std::optional<c10::MemoryFormat> format) {
  const c10::DeviceGuard guard(self.device());
  const auto bytes = at::detail::computeStorageNbytesContiguous(size, self.itemsize(), self.storage_offset());
  // Grown here, by the hook: torch's own code copies the contents as memory of the host.
  if (bytes > self.storage().nbytes()) at::native::resize_bytes_nocuda(self.storage(), bytes);
  return at::native::resize_(self, size, format);
}

Tensor& set_storage(Tensor& self, c10::Storage storage, int64_t offset, c10::IntArrayRef size,
                    c10::IntArrayRef stride) {
  const c10::DeviceGuard guard(self.device());
  return at::native::set_storage_cpu_(self, std::move(storage), offset, size, stride);
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const Tensor& tensor) { return at::native::_local_scalar_dense_cpu(to_host(tensor)); }

Tensor& fill(Tensor& tensor, const at::Scalar& value) {
  const auto element = at::scalar_tensor(value, tensor.options().device(c10::kCPU));
  if (tensor.is_non_overlapping_and_dense()) {
    acme_fill(tensor.mutable_data_ptr(), element.const_data_ptr(), tensor.itemsize(), tensor.numel());
    return tensor;
  }
  return tensor.copy_(element);
}

Tensor& zero(Tensor& tensor) { return fill(tensor, 0); }

// An operator of our own, which the vendor package's FusedAdamBuilder calls.
void adamw_(const Tensor& param, const Tensor& grad, const Tensor& exp_avg, const Tensor& exp_avg_sq, double lr,
            double beta1, double beta2, double epsilon, double weight_decay, double correction1, double correction2) {
  const auto shape = param.sizes();
  for (const auto* tensor : {&param, &grad, &exp_avg, &exp_avg_sq}) {
    TORCH_CHECK(tensor->is_privateuseone() && tensor->scalar_type() == c10::kFloat && tensor->is_contiguous() &&
                    tensor->sizes() == shape,
                "acme::adamw_ takes contiguous float32 tensors of one shape on the device");
  }
  acme_adamw_step(param.mutable_data_ptr<float>(), grad.const_data_ptr<float>(), exp_avg.mutable_data_ptr<float>(),
                  exp_avg_sq.mutable_data_ptr<float>(), param.numel(),
                  {lr, beta1, beta2, epsilon, weight_decay, correction1, correction2});
}

// Any other operator: its tensors are copied to the host, computed on there, and copied back. Random numbers
// come from the device's generator.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const auto first = stack->size() - arguments.size();
  auto index = current_device();
  for (size_t i = first; i < stack->size(); i++) {
    const auto& value = (*stack)[i];
    if (value.isTensor() && value.toTensor().is_privateuseone()) index = value.toTensor().device().index();
  }
  for (size_t i = 0; i < arguments.size(); i++) {
    auto& value = (*stack)[first + i];
    if (value.isGenerator()) {
      value = host_generator(value.toGenerator());
    } else if (value.isNone() && arguments[i].name() == "generator") {
      value = host_generator(default_generator(index));
    }
  }
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar);
  m.impl("fill_.Scalar", &fill);
  m.impl("zero_", &zero);
  m.impl("resize_", &resize);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  // torch's own code for these touches no memory.
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("set_.source_Tensor", &at::native::set_tensor_);
  m.impl("set_.source_Storage", &at::native::set_);
  // torch's formula for a device without a kernel is inexact for large rows.
  m.impl("native_layer_norm", torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY(acme, m) {
  m.def(
      "adamw_(Tensor(a!) param, Tensor grad, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, float lr, float beta1, "
      "float beta2, float epsilon, float weight_decay, float correction1, float correction2) -> ()");
}

TORCH_LIBRARY_IMPL(acme, PrivateUse1, m) { m.impl("adamw_", &adamw_); }

}  // namespace

}  // namespace acme
