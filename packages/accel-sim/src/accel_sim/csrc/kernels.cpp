// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Operators that allocate, change a storage or cross devices, and those that torch composes differently for each device
// type.
#include "aten.h"
#include "hooks.h"
#include "graphs.h"
#include "order.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <limits>

namespace accel_sim {

namespace {

c10::Device target(std::optional<c10::Device> device) {
  const auto index = index_of(device.value_or(c10::Device(config().type)));
  check_device(index);
  return {config().type, index};
}

bool is_metal() {
  return config().type == c10::DeviceType::MPS;
}

void refuse_pinned(std::optional<bool> pin) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
}

at::Tensor empty(
    c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<c10::Device> device, std::optional<bool> pin, std::optional<c10::MemoryFormat> format) {
  refuse_pinned(pin);
  TORCH_CHECK(
      !is_metal() || size.size() <= 16, "MPS supports tensors with dimensions <= 16, but got ", size.size(), ".");
  check_stores(c10::dtype_or_default(dtype));
  const c10::DeviceGuard guard(target(device));
  return at::Tensor(at::detail::empty_generic(
      C10_AS_INTARRAYREF_SLOW(size), allocator(), c10::DispatchKeySet(config().key), c10::dtype_or_default(dtype), format));
}

at::Tensor empty_strided(
    c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>, std::optional<c10::Device> device, std::optional<bool> pin) {
  refuse_pinned(pin);
  check_stores(c10::dtype_or_default(dtype));
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
  Stack stack{self, source, non_blocking};
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
  auto none = make_storage(c10::DataPtr(nullptr, self.device()), 0, allocator());
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

void check_stores(at::ScalarType dtype) {
  TORCH_CHECK_TYPE(
      !is_metal() || dtype != at::kDouble,
      "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please use float32 "
      "instead.");
}

void check_computes(at::ScalarType dtype) {
  if (!is_metal()) return;
  check_stores(dtype);
  TORCH_CHECK_TYPE(
      !at::isFloat8Type(dtype) && dtype != at::kComplexDouble, "Trying to convert ", dtype,
      " to the MPS backend but it does not have support for that dtype.");
}

void run_copy(const c10::OperatorHandle&, Stack* stack) {
  auto arguments = torch::jit::pop(*stack, 3);
  const auto& self = arguments[0].toTensor();
  const auto& source = arguments[1].toTensor();
  stack->push_back(self);
  // Numbers of the host are converted there, those of the device on it.
  if (self.scalar_type() != source.scalar_type() && is_simulated(source)) {
    for (const auto& tensor : {self, source}) check_computes(tensor.scalar_type());
  }
  if (dry_run() && dry_run()->skips_copy(bytes_of(self))) {
    source.expand_as(self);  // raises for sizes that do not fit
    return;
  }
  if (deferring() && !is_recorded_only() && defer_copy(self, source, arguments[2].toBool())) return;
  at::AutoDispatchBelowADInplaceOrView below;
  HostAliases aliases;
  const auto to = is_simulated(self) ? aliases.to_alias(self) : self;
  const auto from = is_simulated(source) ? aliases.to_alias(source) : source;
  if (is_simulated(self) || !is_recorded_only()) to.copy_(from, false);
}

namespace {

constexpr int64_t kFlash = 1;  // sdp::SDPBackend::flash_attention

std::optional<at::Tensor> additive(const std::optional<at::Tensor>& mask, at::ScalarType dtype) {
  if (!mask || !mask->defined() || mask->scalar_type() != at::kBool) return mask;
  auto result = at::zeros_like(*mask, mask->options().dtype(dtype));
  return result.masked_fill_(mask->logical_not(), -std::numeric_limits<double>::infinity());
}

at::Tensor attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& mask,
    double dropout, bool causal, std::optional<double> scale, bool grouped) {
  const auto bias = additive(mask, query.scalar_type());
  const bool learns_bias = bias && bias->defined() && bias->requires_grad();
  const bool dense = !is_simulated(key) || !is_simulated(value) ? false : query.dim() >= 2;
  if (dense && !learns_bias &&
      at::native::_fused_sdp_choice_cpp(query, key, value, bias, dropout, causal, scale, grouped) == kFlash) {
    auto k = key, v = value;
    if (grouped) {
      k = key.repeat_interleave(query.size(-3) / key.size(-3), -3);
      v = value.repeat_interleave(query.size(-3) / value.size(-3), -3);
    }
    return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(query, k, v, dropout, causal, bias, scale));
  }
  return std::get<0>(at::_scaled_dot_product_attention_math(
      query, key, value, bias, dropout, causal, std::nullopt, scale, grouped));
}

at::Tensor with_bias(at::Tensor gates, const std::optional<at::Tensor>& bias) {
  return bias && bias->defined() ? gates.add(*bias) : gates;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& cell,
    const std::optional<at::Tensor>& input_bias, const std::optional<at::Tensor>& hidden_bias) {
  const auto gates = with_bias(with_bias(input_gates.add(hidden_gates), input_bias), hidden_bias).chunk(4, 1);
  const at::Tensor in = gates[0].sigmoid(), forget = gates[1].sigmoid(), candidate = gates[2].tanh(),
             out = gates[3].sigmoid();
  const auto next = forget.mul(cell).add(in.mul(candidate));
  return {out.mul(next.tanh()), next, at::cat({in, forget, candidate, out}, 1)};
}

// There is neither cuDNN nor MIOpen. Lengths: of the inputs and of the targets, as integers or as tensors.
template <typename Lengths>
bool never(const at::Tensor&, const at::Tensor&, Lengths, Lengths, int64_t /*blank*/) {
  return false;
}

std::tuple<at::Tensor, at::Tensor> gru_cell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& hidden,
    const std::optional<at::Tensor>& input_bias, const std::optional<at::Tensor>& hidden_bias) {
  const auto from_input = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto from_hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const at::Tensor reset = from_input[0].add(from_hidden[0]).sigmoid(), update = from_input[1].add(from_hidden[1]).sigmoid();
  const auto next = from_input[2].add(reset.mul(from_hidden[2])).tanh();
  return {next.add(update.mul(hidden.sub(next))), at::cat({reset, update, next, hidden, from_hidden[2]}, 1)};
}

} // namespace

void register_kernels() {
  auto& kernels = library(config().key);
  kernels.impl("empty.memory_format", &empty);
  kernels.impl("empty_strided", &empty_strided);
  kernels.impl("_efficientzerotensor", &efficient_zero);
  kernels.impl("copy_", &copy_);
  kernels.impl("_copy_from", &copy_from);
  kernels.impl("_copy_from_and_resize", &copy_from_and_resize);
  kernels.impl("set_.source_Storage", &set_whole_storage);
  kernels.impl("set_.source_Storage_storage_offset", &set_storage);
  kernels.impl("set_.source_Tensor", &set_tensor);
  kernels.impl("set_", &set_empty);
  kernels.impl("record_stream", &use_on_stream);
  kernels.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
  for (const auto key : {config().key, config().autograd_key}) {
    auto& composites = library(key);
    composites.impl("scaled_dot_product_attention", &attention);
    composites.impl("_thnn_fused_lstm_cell", &lstm_cell);
    composites.impl("_thnn_fused_gru_cell", &gru_cell);
  }
  if (config().type != c10::DeviceType::CUDA) return;
  for (const std::string name : {"_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"}) {
    if (!c10::Dispatcher::singleton().findOp({"aten::" + name, ""})) continue;
    kernels.impl(name.c_str(), &never<c10::IntArrayRef>);
    kernels.impl((name + ".Tensor").c_str(), &never<const at::Tensor&>);
  }
}

} // namespace accel_sim
