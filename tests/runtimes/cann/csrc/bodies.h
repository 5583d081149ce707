// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Bodies of operators that are longer than a line of operators.txt.
#pragma once

#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "handles.h"

namespace emulated {

using Pair = std::pair<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

inline std::optional<at::Tensor> given(const Tensor& tensor) {
  return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
}

template <class Function>
void for_each(const Tensors& out, const Function& value) {
  for (size_t i = 0; i < out.size(); ++i) put(out[i], value(i));
}

inline void put_each(const Tensors& out, const Tensors& values) {
  for_each(out, [&](size_t i) { return values[i]; });
}

inline std::optional<c10::string_view> rounding(int mode) {
  if (mode == 1) return "trunc";
  if (mode == 2) return "floor";
  return std::nullopt;
}

inline Tensor scattered(const Tensor& a, int64_t dim, const Tensor& index, const Tensor& from, int64_t how) {
  if (how == 1) return at::scatter(a, dim, index, from, "add");
  if (how == 2) return at::scatter(a, dim, index, from, "multiply");
  return at::scatter(a, dim, index, from);
}

// As torch_npu numbers the reductions of scatter_reduce, from 1 on.
inline Tensor scatter_reduced(const Tensor& a, int64_t dim, const Tensor& index, const Tensor& from, int64_t how, bool self) {
  static const char* const names[] = {"sum", "prod", "amax", "amin", "mean"};
  return at::scatter_reduce(a, dim, index, from, names[how - 1], self);
}

// The caller's tensor has as many elements as the result can have.
inline void put_unique(const Three& found, const Output& out, const Tensor& index, const Output& times) {
  const auto& [values, of_each, counts] = found;
  put(out, values);
  if (index.defined() && index.numel() == of_each.numel()) put(index, of_each);
  if (times) put(times, counts);
}

inline void unique(const Tensor& a, const Output& out, const Tensor& index, const Output& times) {
  put_unique(at::_unique2(a, true, true, true), out, index, times);
}

inline void unique_consecutive(
    const Tensor& a, int64_t dim, const Output& out, const Tensor& index, const Output& times) {
  const auto axis = dim < a.dim() ? std::optional<int64_t>(dim) : std::nullopt;
  put_unique(at::unique_consecutive(a, true, true, axis), out, index, times);
}

inline Tensor repeat_interleave_backward(const Tensor& grad, const Tensor& times, int64_t dim, const Tensor& out) {
  const Tensor each = times.numel() == 1 ? times.flatten().expand(out.size(dim)) : times;
  return at::index_add(at::zeros_like(out, grad.options()), dim, at::repeat_interleave(each), grad);
}

template <class Number>
std::optional<Number> unless_zero(Number number) {
  return number > 0 ? std::optional<Number>(number) : std::nullopt;
}

inline Tensor max_pool2d_backward(
    const Tensor& grad, const Tensor& a, const Ints& size, const Ints& stride, const Ints& padding, const Ints& dilation,
    bool ceil) {
  const Tensor index = std::get<1>(at::max_pool2d_with_indices(a, size, stride, padding, dilation, ceil));
  return at::max_pool2d_with_indices_backward(grad, a, size, stride, padding, dilation, ceil, index);
}

// The gradient of a loss, given that of each element: 1 is the mean.
inline Tensor of_loss(const Tensor& grad, const Tensor& each, int64_t reduction) {
  return reduction == at::Reduction::Mean ? grad * each / each.numel() : grad * each;
}

inline Tensor l1_loss_backward(const Tensor& grad, const Tensor& a, const Tensor& b, int64_t reduction) {
  return of_loss(grad, at::sign(a - b), reduction);
}

inline Tensor kl_div_backward(const Tensor& grad, const Tensor& a, const Tensor& b, int64_t reduction, bool log) {
  return of_loss(grad, (log ? -at::exp(b) : -b).expand_as(a), reduction);
}

inline Tensor logits_backward(
    const Tensor& grad, const Tensor& a, const Tensor& target, const Tensor& weight, const Tensor& positive,
    int64_t reduction) {
  const Tensor sigmoid = at::sigmoid(a), weighted = positive.defined() ? target * positive : target;
  const Tensor each = (weighted + 1 - target) * sigmoid - weighted;
  return of_loss(grad, weight.defined() ? each * weight : each, reduction);
}

inline Pair prelu_backward(const Tensor& grad, const Tensor& a, const Tensor& weight) {
  Ints shape(a.dim(), 1);
  if (weight.numel() > 1) shape[1] = weight.numel();
  const auto [to_a, to_weight] = at::_prelu_kernel_backward(grad, a, weight.reshape(shape));
  return {to_a, to_weight.sum_to_size(shape)};
}

inline c10::List<std::optional<at::Tensor>> indices(const Tensors& all) {
  c10::List<std::optional<at::Tensor>> found;
  for (const Tensor& each : all) found.push_back(each.defined() && each.numel() ? std::optional<at::Tensor>(each) : std::nullopt);
  return found;
}

// A sum or mean in the type that the caller names, in float32 for narrow ones.
inline Tensor reduced(const Tensor& a, const Ints& dims, bool keep, int type, bool mean) {
  const auto named = type_of(type);
  const Tensor x = a.to(named == at::kHalf || named == at::kBFloat16 ? at::kFloat : named);
  return mean ? at::mean(x, some(dims), keep) : at::sum(x, some(dims), keep);
}

inline Three layer_norm(const Tensor& a, const Ints& shape, const Tensor& weight, const Tensor& bias, double eps) {
  const auto like = [&](const Tensor& x) { return x.defined() ? given(x.to(a.scalar_type())) : std::nullopt; };
  return at::native_layer_norm(a, shape, like(weight), like(bias), eps);
}

inline Three layer_norm_backward(
    const Tensor& grad, const Tensor& a, const Ints& shape, const Tensor& mean, const Tensor& rstd, const Tensor& weight,
    const Tensor& bias) {
  Ints statistics = a.sizes().vec();
  for (size_t i = statistics.size() - shape.size(); i < statistics.size(); ++i) statistics[i] = 1;
  const auto wide = [](const Tensor& x) { return x.to(at::kFloat).contiguous(); };
  const auto maybe = [&](const Tensor& x) { return x.defined() ? given(wide(x)) : std::nullopt; };
  return at::native_layer_norm_backward(
      wide(grad), wide(a), shape, wide(mean).reshape(statistics), wide(rstd).reshape(statistics), maybe(weight), maybe(bias),
      {true, true, true});
}

inline Pair rms_norm(const Tensor& a, const Tensor& weight, double eps) {
  const Tensor x = a.to(at::kFloat), rstd = at::rsqrt(at::mean(x * x, {-1}, true) + eps);
  return {x * rstd * weight.to(at::kFloat), rstd};
}

inline Pair rms_norm_backward(const Tensor& grad, const Tensor& a, const Tensor& rstd, const Tensor& weight) {
  const Tensor g = grad.to(at::kFloat), r = rstd.to(at::kFloat), normed = a.to(at::kFloat) * r;
  const Tensor by_normed = g * weight.to(at::kFloat);
  const Tensor to_a = r * (by_normed - normed * at::mean(by_normed * normed, {-1}, true));
  return {to_a, (g * normed).sum_to_size(weight.sizes())};
}

// What the sines of a rotary embedding multiply: halves are turned in mode 0, pairs else.
inline Tensor turned(const Tensor& x, int64_t mode) {
  if (mode == 0) {
    const auto halves = x.chunk(2, -1);
    return at::cat({halves[1].neg(), halves[0]}, -1);
  }
  const Tensor pairs = x.unflatten(-1, {-1, 2});
  return at::stack({pairs.select(-1, 1).neg(), pairs.select(-1, 0)}, -1).flatten(-2);
}

inline Tensor swiglu(const Tensor& a, int64_t dim) {
  const auto halves = a.to(at::kFloat).chunk(2, dim);
  return at::silu(halves[0]) * halves[1];
}

// A mask has a bit for each element, the lowest first.
inline void dropout_mask(const Ints& shape, double p, const at::Generator& generator, const Tensor& mask) {
  const int64_t count = c10::multiply_integers(shape);
  const Tensor kept = at::empty({count}, at::kByte).bernoulli_(1 - p, generator);
  mask.zero_();
  auto* const bits = mask.data_ptr<uint8_t>();
  const auto* const keep = kept.const_data_ptr<uint8_t>();
  for (int64_t i = 0; i < count; ++i) bits[i / 8] |= static_cast<uint8_t>(keep[i] << (i % 8));
}

inline Tensor dropped(const Tensor& a, const Tensor& mask, double p) {
  const Tensor kept = at::empty({a.numel()}, at::kByte);
  const auto* const bits = mask.const_data_ptr<uint8_t>();
  auto* const keep = kept.data_ptr<uint8_t>();
  for (int64_t i = 0; i < a.numel(); ++i) keep[i] = bits[i / 8] >> (i % 8) & 1;
  return p < 1 ? a * kept.view(a.sizes()) / (1 - p) : at::zeros_like(a);
}

// Attention in float32. Tensors come in a layout of batch B, heads N, sequence S, size D, or H = N * D.
class Attention {
 public:
  Attention(
      const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias, const Tensor& drop, const Tensor& mask, double scale,
      double kept, int64_t before, int64_t after, int64_t heads, const Text& layout, int64_t sparse)
      : layout_(layout), scale_(scale), size_(q.dim() == 4 ? q.size(3) : q.size(2) / heads) {
    q_ = apart(q);
    k_ = apart(k);
    groups_ = q_.size(1) / k_.size(1);
    k_ = k_.repeat_interleave(groups_, 1);
    v_ = apart(v).repeat_interleave(groups_, 1);
    Tensor scores = at::matmul(q_, k_.transpose(-1, -2)) * scale;
    if (bias.defined()) scores = scores + bias.to(at::kFloat);
    if (mask.defined()) scores = scores.masked_fill(hidden(mask, sparse), -std::numeric_limits<float>::infinity());
    else if (sparse == 0) scores = scores.masked_fill(outside(before, after), -std::numeric_limits<float>::infinity());
    most_ = at::amax(scores, {-1}, true);
    const Tensor powers = at::exp(scores - most_.masked_fill(at::isinf(most_), 0));
    sum_ = powers.sum(-1, true);
    weights_ = at::where(sum_ > 0, powers / sum_, at::zeros({}, at::kFloat));
    keep_ = drop.defined() && kept < 1 ? dropped(at::ones_like(weights_), drop, 1 - kept) : at::ones_like(weights_);
  }

  void forward(const Tensor& most, const Tensor& sum, const Tensor& out) const {
    put(out, together(at::matmul(weights_ * keep_, v_)));
    put(most, most_.expand({-1, -1, -1, 8}));  // eight times, as the kernel has them
    put(sum, sum_.expand({-1, -1, -1, 8}));
  }

  void backward(const Tensor& grad, const Tensor& to_q, const Tensor& to_k, const Tensor& to_v, const Tensor& to_bias) const {
    const Tensor g = apart(grad), by_weight = at::matmul(g, v_.transpose(-1, -2)) * keep_;
    const Tensor by_score = weights_ * (by_weight - (by_weight * weights_).sum(-1, true));
    put(to_q, together(at::matmul(by_score, k_) * scale_));
    put(to_k, together(grouped(at::matmul(by_score.transpose(-1, -2), q_) * scale_)));
    put(to_v, together(grouped(at::matmul((weights_ * keep_).transpose(-1, -2), g))));
    if (to_bias.defined() && to_bias.numel()) put(to_bias, by_score.sum_to_size(to_bias.sizes()));
  }

 private:
  // As (B, N, S, D) in float32.
  Tensor apart(const Tensor& x) const {
    const Tensor wide = x.to(at::kFloat);
    if (layout_ == "BNSD") return wide;
    if (layout_ == "BSND") return wide.transpose(1, 2);
    const Tensor split = wide.unflatten(2, {-1, size_});
    if (layout_ == "BSH") return split.transpose(1, 2);
    if (layout_ == "SBH") return split.permute({1, 2, 0, 3});
    throw std::runtime_error("the emulated attention has no layout " + layout_);
  }

  Tensor together(const Tensor& x) const {
    if (layout_ == "BNSD") return x;
    if (layout_ == "BSND") return x.transpose(1, 2);
    return layout_ == "BSH" ? x.transpose(1, 2).flatten(2) : x.permute({2, 0, 1, 3}).flatten(2);
  }

  // The gradient of keys that several heads share.
  Tensor grouped(const Tensor& x) const { return x.unflatten(1, {-1, groups_}).sum(2); }

  Tensor outside(int64_t before, int64_t after) const {
    const Tensor rows = at::arange(q_.size(2)).unsqueeze(1), columns = at::arange(k_.size(2)).unsqueeze(0);
    return (columns - rows > after).logical_or(rows - columns > before);
  }

  // Mode 2 and 3 have a compressed mask: causal, from the upper left or the lower right corner.
  Tensor hidden(const Tensor& mask, int64_t sparse) const {
    if (sparse != 2 && sparse != 3) return mask.to(at::kBool);
    return outside(std::numeric_limits<int64_t>::max() / 2, sparse == 2 ? 0 : k_.size(2) - q_.size(2));
  }

  Text layout_;
  double scale_;
  int64_t size_, groups_ = 1;
  Tensor q_, k_, v_, most_, sum_, weights_, keep_;
};

inline void unscale(const Tensors& all, const Tensor& found, const Tensor& scale) {
  for (const Tensor& each : all) {
    if (!at::isfinite(each).all().item<bool>()) found.fill_(1);
    each.mul_(scale);
  }
}

// `step` counts the steps before this one. In float64, so that what is off is what torch_npu has rounded to float32.
inline void adam_w(
    const Tensor& param, const Tensor& first, const Tensor& second, const Tensor& most, const Tensor& grad, const Tensor& step,
    double lr, double beta1, double beta2, double decay, double eps, bool maximize) {
  const auto wide = [](const Tensor& x) { return x.to(at::kDouble); };
  const Tensor g = maximize ? wide(grad).neg() : wide(grad);
  const double count = wide(step).item<double>() + 1;
  const Tensor m = wide(first) * beta1 + g * (1 - beta1), v = wide(second) * beta2 + g * g * (1 - beta2);
  const Tensor top = most.defined() ? at::maximum(wide(most), v) : v;
  const Tensor below = (top / (1 - std::pow(beta2, count))).sqrt() + eps;
  const Tensor p = wide(param) * (1 - lr * decay) - lr / (1 - std::pow(beta1, count)) * m / below;
  put(param, p);
  put(first, m);
  put(second, v);
  put(most, top);
}

inline Pair dynamic_quant(const Tensor& a, const Tensor& smooth) {
  const Tensor x = smooth.defined() ? a.to(at::kFloat) * smooth.to(at::kFloat) : a.to(at::kFloat);
  const Tensor scale = at::amax(x.abs(), {-1}, true) / 127;
  return {at::round(x / scale).nan_to_num(0).clamp(-128, 127), scale.squeeze(-1)};
}

} // namespace emulated
