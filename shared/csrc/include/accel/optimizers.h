// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The arithmetic of an optimizer step on one element, shared by host and device kernels. Callers compute the scalars in
// double. Nothing here uses a fused multiply-add, and kernels are compiled without contraction, so that every
// instruction set and every number of threads gives the same bits.
#pragma once

// Compilers at run time have the functions without a header, and no such header.
#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
#define ACCEL_BOTH __host__ __device__
#else
#include <cmath>
#define ACCEL_BOTH
#endif

namespace accel {

// Kingma and Ba, arXiv:1412.6980; Loshchilov and Hutter, arXiv:1711.05101.
struct Adam {
  float beta1, rest1;      // rest is 1 - beta
  float beta2, rest2;
  float step_size;         // lr / (1 - beta1^step)
  float root_correction;   // 1 / sqrt(1 - beta2^step)
  float eps;
  float keep;              // decoupled decay: 1 - lr * weight_decay, else 1
  float coupled_decay;     // decay that is added to the gradient, else 0
  float grad_factor;       // multiplies the gradient first

  ACCEL_BOTH void operator()(float& p, float g, float& m, float& v) const {
    g *= grad_factor;
    if (coupled_decay != 0.0f) g += coupled_decay * p;  // 0 times an infinite parameter is NaN
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * (g * g);
    p = keep * p - step_size * (m / (sqrtf(v) * root_correction + eps));
  }
};

// Undoes a step, up to rounding: from the values after it and its gradient computes those before it.
struct AdamRollback {
  Adam step;

  ACCEL_BOTH void operator()(float& p, float g, float& m, float& v) const {
    const float moved = step.step_size * (m / (sqrtf(v) * step.root_correction + step.eps));
    p = (p + moved) / step.keep;
    g *= step.grad_factor;
    if (step.coupled_decay != 0.0f) g += step.coupled_decay * p;
    m = (m - step.rest1 * g) / step.beta1;
    const float before = (v - step.rest2 * (g * g)) / step.beta2;
    v = before < 0.0f ? 0.0f : before;  // rounding may give a negative square
  }
};

// Duchi, Hazan and Singer, JMLR 12 (2011).
struct Adagrad {
  float lr, eps, decay, grad_factor;

  ACCEL_BOTH void operator()(float& p, float g, float& v) const {
    g *= grad_factor;
    if (decay != 0.0f) g += decay * p;
    v = v + g * g;
    p = p - lr * (g / (sqrtf(v) + eps));
  }
};

// Chen et al., arXiv:2302.06675. at_zero: the direction where c is 0. In the source it is 0; in DeepSpeed's kernel for
// CUDA -1, so that a parameter without a gradient grows by lr.
struct Lion {
  float lr, beta1, rest1, beta2, rest2, keep, grad_factor, at_zero;

  ACCEL_BOTH void operator()(float& p, float g, float& m) const {
    g = g * grad_factor;
    const float c = beta1 * m + rest1 * g;
    // A NaN must reach the parameter, where it is noticed.
    const float direction = c > 0.0f ? 1.0f : c < 0.0f ? -1.0f : c == 0.0f ? at_zero : c;
    p = keep * p - lr * direction;
    m = beta2 * m + rest2 * g;
  }
};

} // namespace accel
