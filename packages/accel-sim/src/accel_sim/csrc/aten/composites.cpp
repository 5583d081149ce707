// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Operators composed of others, which torch composes differently for each device type: attention, with the CPU's
// choice of algorithm, and the fused recurrent cells. They are registered above autograd, which records their parts.
#include "aten/aten.h"

#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <limits>

namespace accel_sim {

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

// There is neither cuDNN nor MIOpen.
bool never(
    const at::Tensor&, const at::Tensor&, c10::IntArrayRef /*input_lengths*/, c10::IntArrayRef /*target_lengths*/,
    int64_t /*blank*/) {
  return false;
}

bool never_by_tensors(
    const at::Tensor&, const at::Tensor&, const at::Tensor& /*input_lengths*/, const at::Tensor& /*target_lengths*/,
    int64_t /*blank*/) {
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

void register_composites() {
  for (const auto key : {config().key, config().autograd_key}) {
    auto* library = new torch::Library(torch::Library::IMPL, "aten", std::make_optional(key), __FILE__, __LINE__);
    library->impl("scaled_dot_product_attention", &attention);
    library->impl("_thnn_fused_lstm_cell", &lstm_cell);
    library->impl("_thnn_fused_gru_cell", &gru_cell);
  }
  if (config().type != c10::DeviceType::CUDA) return;
  auto* library = new torch::Library(torch::Library::IMPL, "aten", std::make_optional(config().key), __FILE__, __LINE__);
  for (const std::string name : {"_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"}) {
    if (!c10::Dispatcher::singleton().findOp({"aten::" + name, ""})) continue;
    library->impl(name.c_str(), &never);
    library->impl((name + ".Tensor").c_str(), &never_by_tensors);
  }
}

} // namespace accel_sim
