// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The kernels of one instruction set, and the choice among them.
#pragma once

#include <cstdint>

namespace accel_host {

// One step over n contiguous floats; `op` is the functor of accel/optimizers.h that belongs to the kernel.
using Step = void (*)(const void* op, float* p, const float* g, float* first, float* second, int64_t n);
using Widen = void (*)(const uint16_t* from, float* to, int64_t n);
using Narrow = void (*)(const float* from, uint16_t* to, int64_t n);

struct Level {
  Step adam, adam_rollback, adagrad, lion, sgd;
  Widen from_bf16, from_f16;
  Narrow to_bf16, to_f16;
  double (*sum_of_squares)(const float* x, int64_t n);
  void (*triad)(float* a, const float* b, const float* c, float s, int64_t n);
};

const Level& level();

} // namespace accel_host
