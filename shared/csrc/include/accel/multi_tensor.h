// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Steps of Adam and Lion on lists of tensors, many a launch, as kernels; optimizers.h has the arithmetic. Types of
// gradient, parameter and states may differ: computed in float, rounded once. Any size and any alignment of elements.
#pragma once

#include "accel/device.h"
#include "accel/optimizers.h"

namespace accel {

constexpr int kTensors = 40;  // a launch: the arguments, by value, are below the 2 KB that every driver takes
constexpr int kStepPack = 4;  // elements an access
constexpr int kAccess = 16;   // bytes that the widest access has to be aligned to

// Gradients, parameters and one or two states of some tensors. A block has `chunk` elements of one tensor, a multiple of
// kStepPack; the blocks of tensor t are those before end[t].
struct TensorTable {
  Address at[4][kTensors];
  int64_t size[kTensors];
  uint32_t end[kTensors];
  int64_t chunk;
};

template <class G, class P, class M, int states>
struct Elements {
  const typename G::Stored* grad;
  typename P::Stored* param;
  typename M::Stored* state[states];

  ACCEL_DEVICE bool aligned() const {
    uint64_t bits = reinterpret_cast<uint64_t>(grad) | reinterpret_cast<uint64_t>(param);
    for (int s = 0; s < states; ++s) bits |= reinterpret_cast<uint64_t>(state[s]);
    return bits % kAccess == 0;
  }

  // `count` elements from number i on, each access of all of them.
  template <int count, class Step>
  ACCEL_DEVICE void take(int64_t i, const Step& step) const {
    const auto g = *reinterpret_cast<const Pack<typename G::Stored, count>*>(grad + i);
    auto* const param_at = reinterpret_cast<Pack<typename P::Stored, count>*>(param + i);
    auto p = *param_at;
    Pack<typename M::Stored, count> m[states];
    for (int s = 0; s < states; ++s) m[s] = *reinterpret_cast<Pack<typename M::Stored, count>*>(state[s] + i);
    for (int k = 0; k < count; ++k) {
      float values[1 + states] = {P::load(p.at[k])};
      for (int s = 0; s < states; ++s) values[1 + s] = M::load(m[s].at[k]);
      apply(step, G::load(g.at[k]), values);
      p.at[k] = P::store(values[0]);
      for (int s = 0; s < states; ++s) m[s].at[k] = M::store(values[1 + s]);
    }
    *param_at = p;
    for (int s = 0; s < states; ++s) *reinterpret_cast<Pack<typename M::Stored, count>*>(state[s] + i) = m[s];
  }

  static ACCEL_DEVICE void apply(const Adam& step, float g, float (&values)[3]) { step(values[0], g, values[1], values[2]); }
  static ACCEL_DEVICE void apply(const Lion& step, float g, float (&values)[2]) { step(values[0], g, values[1]); }
};

template <class G, class P, class M, int states, class Step>
ACCEL_DEVICE void take_step(const TensorTable& table, const Step& step) {
  uint32_t t = 0;
  while (group() >= table.end[t]) ++t;
  Elements<G, P, M, states> of;
  of.grad = pointer<const typename G::Stored>(table.at[0][t]);
  of.param = pointer<typename P::Stored>(table.at[1][t]);
  for (int s = 0; s < states; ++s) of.state[s] = pointer<typename M::Stored>(table.at[2 + s][t]);
  const int64_t begin = static_cast<int64_t>(group() - (t ? table.end[t - 1] : 0)) * table.chunk;
  const int64_t last = begin + table.chunk;
  const int64_t end = last < table.size[t] ? last : table.size[t];
  const int64_t stride = static_cast<int64_t>(items()) * kStepPack;
  int64_t i = begin + static_cast<int64_t>(item()) * kStepPack;
  if (of.aligned()) {
    ACCEL_NO_UNROLL
    for (; i + kStepPack <= end; i += stride) of.template take<kStepPack>(i, step);
  }
  // What is left: all elements of a view that is not aligned, or the last ones, fewer than a pack.
  ACCEL_NO_UNROLL
  for (; i < end; i += stride) {
    ACCEL_NO_UNROLL
    for (int64_t k = i; k < i + kStepPack && k < end; ++k) of.template take<1>(k, step);
  }
}

} // namespace accel

#define ACCEL_STEPS(g, p, m, G, P, M)                                                                       \
  ACCEL_KERNEL accel_adam_##g##_##p##_##m(const accel::TensorTable table, const accel::Adam step) {         \
    accel::take_step<accel::G, accel::P, accel::M, 2>(table, step);                                         \
  }                                                                                                         \
  ACCEL_EXPORT(accel_adam_##g##_##p##_##m);                                                                 \
  ACCEL_KERNEL accel_lion_##g##_##p##_##m(const accel::TensorTable table, const accel::Lion step) {         \
    accel::take_step<accel::G, accel::P, accel::M, 1>(table, step);                                         \
  }                                                                                                         \
  ACCEL_EXPORT(accel_lion_##g##_##p##_##m);

// Types of gradient, parameter and states: those of trainings with and without float32 copies of gradients and states.
ACCEL_STEPS(f32, f32, f32, Float32, Float32, Float32)
ACCEL_STEPS(f16, f32, f32, Float16, Float32, Float32)
ACCEL_STEPS(f16, f16, f32, Float16, Float16, Float32)
ACCEL_STEPS(f32, f16, f32, Float32, Float16, Float32)
ACCEL_STEPS(f16, f16, f16, Float16, Float16, Float16)
ACCEL_STEPS(bf16, f32, f32, Bfloat16, Float32, Float32)
ACCEL_STEPS(bf16, bf16, f32, Bfloat16, Bfloat16, Float32)
ACCEL_STEPS(f32, bf16, f32, Float32, Bfloat16, Float32)
ACCEL_STEPS(bf16, bf16, bf16, Bfloat16, Bfloat16, Bfloat16)
