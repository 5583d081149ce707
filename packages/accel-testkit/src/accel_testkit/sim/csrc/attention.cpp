// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Attention as the CPU chooses and computes it: torch's own choice refuses device types that this build lacks.
#include "sim.h"

#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/zeros_like.h>
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
  const bool dense = !is_mine(key) || !is_mine(value) ? false : query.dim() >= 2;
  if (dense && !learns_bias &&
      at::_fused_sdp_choice(query, key, value, bias, dropout, causal, scale, grouped) == kFlash) {
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

} // namespace

void register_attention() {
  for (const auto key : {config().key, config().autograd_key}) {
    auto* library = new torch::Library(torch::Library::IMPL, "aten", std::make_optional(key), __FILE__, __LINE__);
    library->impl("scaled_dot_product_attention", &attention);
  }
}

} // namespace accel_sim
