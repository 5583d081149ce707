// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Host kernels of accel as a C library: pointers, sizes and scalars. It includes neither torch nor Python.
//
// Every function may be called from several threads on different memory. Arguments are not checked beyond what is
// documented here: the caller (accel_ops.optimizers.cpu_steps) does that.
//
// A change in this file raises ACCEL_ABI_VERSION, here and in accel_ops.host.c_interface.
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define ACCEL_API __declspec(dllexport)
#else
#define ACCEL_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum { ACCEL_ABI_VERSION = 9 };

// Element types.
enum { ACCEL_F32 = 0, ACCEL_BF16 = 1, ACCEL_F16 = 2 };

// Status codes. All functions that return `int` return one of these.
enum { ACCEL_OK = 0, ACCEL_BAD_TYPE = 1, ACCEL_BAD_LEVEL = 2, ACCEL_NO_MEMORY = 3, ACCEL_OVERLAP = 4 };

// Lists of contiguous tensors: entry i of each list points to sizes[i] elements. Unused lists are null. All lists but
// `grads` are written. A written tensor that shares memory with any other tensor gives ACCEL_OVERLAP, and nothing is
// written.
typedef struct {
  int64_t tensors;       // length of each list
  const int64_t* sizes;
  void* const* params;
  void* const* grads;
  void* const* first;    // optimizer states
  void* const* second;
  void* const* copies;   // receive the updated parameters, converted to copy_type
  int32_t param_type, grad_type, state_type, copy_type;
  int32_t threads;       // upper limit; fewer are used for little work
} accel_tensor_lists;

typedef struct {
  double lr, beta1, beta2, eps, weight_decay;
  double grad_factor;       // multiplies the gradient first
  int64_t step;             // from 1
  int32_t decoupled;        // 1: AdamW; 0: the decay is added to the gradient
  int32_t bias_correction;  // 1 or 0
} accel_adam_options;

// A gradient of `size` elements on its way to the optimizer.
typedef struct {
  const void* grad;
  void* accumulated;  // gradients so far, of grad_type, or null: receives the gradient
  void* destination;  // or null: receives the gradient, after accumulation, converted to destination_type
  int64_t size;
  // add: 1: the gradient is added to `accumulated`; 0: it replaces it.
  int32_t grad_type, destination_type, add, threads;
} accel_gradient;

static_assert(sizeof(void*) == 8, "accel-ops needs a 64-bit machine: Python passes addresses as 64-bit integers");
static_assert(sizeof(accel_tensor_lists) == 80 && offsetof(accel_tensor_lists, threads) == 72, "structs are packed");
static_assert(sizeof(accel_adam_options) == 64 && offsetof(accel_adam_options, step) == 48, "structs are packed");
static_assert(sizeof(accel_gradient) == 48 && offsetof(accel_gradient, threads) == 44, "structs are packed");

// One optimizer step, in place.
ACCEL_API int accel_adam(const accel_tensor_lists* lists, const accel_adam_options* options);
ACCEL_API int accel_adam_rollback(const accel_tensor_lists* lists, const accel_adam_options* options);
ACCEL_API int accel_adagrad(
    const accel_tensor_lists* lists, double lr, double eps, double weight_decay, double grad_factor);
// at_zero: the direction where gradient and momentum are 0.
ACCEL_API int accel_lion(
    const accel_tensor_lists* lists, double lr, double beta1, double beta2, double weight_decay, double grad_factor,
    double at_zero);

// Sum of squares over all `grads`, in double, in an order that does not depend on threads or instruction set;
// infinite or NaN where an element is.
ACCEL_API int accel_sum_of_squares(const accel_tensor_lists* lists, double* result);

// Accumulates, converts and copies one gradient. The result is the sum of squares of what `destination` received, before
// its conversion, as accel_sum_of_squares computes it; 0 without a destination. The memory must not overlap.
ACCEL_API int accel_copy_gradient(const accel_gradient* gradient, double* result);

// Instruction sets: 1, 3 and 4 are the x86-64 levels, 5 is Arm's SVE, 0 any other architecture. accel_set_level returns
// ACCEL_BAD_LEVEL for a level that this machine lacks.
ACCEL_API int32_t accel_level(void);
ACCEL_API int32_t accel_best_level(void);
ACCEL_API int accel_set_level(int32_t level);

// ACCEL_ABI_VERSION of the library.
ACCEL_API int32_t accel_abi_version(void);

#ifdef __cplusplus
}
#endif
