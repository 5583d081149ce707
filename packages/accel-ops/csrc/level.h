// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The kernels of one instruction set ("level", as in x86-64-v3 or SVE), and the selected one.
#pragma once

#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define ACCEL_X86_LEVELS 1
#else
#define ACCEL_X86_LEVELS 0
#endif

#if defined(__aarch64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 10
#define ACCEL_SVE 1
#else
#define ACCEL_SVE 0
#endif

namespace accel_ops {

// One optimizer step over n contiguous elements. `op` points to the functor of accel/optimizers.h for which the kernel
// was compiled. A kernel with one state ignores `second`.
using Step = void (*)(const void* op, void* p, const void* g, void* first, void* second, int64_t n);

// Kernels by element type, of parameters and gradients first, of states second. Elements of other types are converted
// to float32 before and back after (optimizers.cpp).
struct Steps {
  Step f32_f32, bf16_f32, bf16_bf16;
};

using Widen = void (*)(const uint16_t* from, float* to, int64_t n);
using Narrow = void (*)(const float* from, uint16_t* to, int64_t n);

struct Level {
  Steps adam, adam_rollback, adagrad, lion;
  Widen from_bf16, from_f16;
  Narrow to_bf16, to_f16;
  double (*sum_of_squares)(const float* x, int64_t n);
};

namespace base {
extern const Level kLevel;
}
namespace v3 {
extern const Level kLevel;
}
namespace v4 {
extern const Level kLevel;
}
namespace sve {
extern const Level kLevel;
}

// The selected level.
const Level& level();

} // namespace accel_ops
