// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Host kernels of accel, as a C library: pointers, sizes and plain scalars. It knows neither torch nor Python.
//
// Every function is safe to call from several threads on different memory. Arguments are not checked here beyond
// what is named: the caller (accel_host.kernels) does that.
#pragma once

#include <stdint.h>

#if defined(_WIN32)
#define ACCEL_API __declspec(dllexport)
#else
#define ACCEL_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum { ACCEL_F32 = 0, ACCEL_BF16 = 1, ACCEL_F16 = 2 };
enum { ACCEL_OK = 0, ACCEL_BAD_TYPE = 1, ACCEL_BAD_LEVEL = 2, ACCEL_NO_MEMORY = 3, ACCEL_OVERLAP = 4 };

// Lists of tensors, all contiguous: entry i of each list has sizes[i] elements. Unused lists are null. All
// but the gradients are written; one that shares memory with another is refused with ACCEL_OVERLAP, before anything
// is written.
// first, second: the optimizer's states. copy: takes the updated parameters in copy_type, null for none.
// threads: at most this many are used; fewer for little work.
typedef struct {
  int64_t tensors;
  const int64_t* sizes;
  void* const* params;
  void* const* grads;
  void* const* first;
  void* const* second;
  void* const* copies;
  int32_t param_type, grad_type, state_type, copy_type;
  int32_t threads;
} accel_lists;

typedef struct {
  double lr, beta1, beta2, eps, weight_decay, grad_factor;
  int64_t step;             // from 1
  int32_t decoupled;        // 1: AdamW; 0: the decay is added to the gradient
  int32_t bias_correction;
} accel_adam_options;

// A step on one tensor, all in one block: what a call costs beside the work is what counts for small tensors.
typedef struct {
  void *param, *grad, *first, *second;
  int64_t size;
  int32_t param_type, grad_type, state_type, threads;
  accel_adam_options options;
} accel_adam_single;

ACCEL_API int accel_adam_one(const accel_adam_single* single);
ACCEL_API int accel_adam(const accel_lists* lists, const accel_adam_options* options);
ACCEL_API int accel_adam_rollback(const accel_lists* lists, const accel_adam_options* options);
ACCEL_API int accel_adagrad(const accel_lists* lists, double lr, double eps, double weight_decay, double grad_factor);
ACCEL_API int accel_lion(
    const accel_lists* lists, double lr, double beta1, double beta2, double weight_decay, double grad_factor);
ACCEL_API int accel_sgd(
    const accel_lists* lists, double lr, double momentum, double dampening, double weight_decay,
    double grad_factor, int32_t nesterov, int32_t first_step);

// Sum of squares over all `grads`, in double, in an order that does not depend on threads or instruction set;
// infinite or NaN where an element is.
ACCEL_API int accel_sum_of_squares(const accel_lists* lists, double* result);

// Zeroes `first` with the division of work of a step on the same lists: on a NUMA machine the pages of fresh memory
// then lie beside the cores that will step on them.
ACCEL_API int accel_zero(const accel_lists* lists);

// STREAM's triad a = b + s * c, for benchmarks on the same compiler and threads.
ACCEL_API void accel_triad(float* a, const float* b, const float* c, float s, int64_t n, int32_t threads);

// Instruction sets: 1, 3, 4 are the x86-64 levels, 0 is any other machine's. accel_set_level takes a level
// that the machine has; ACCEL_BAD_LEVEL otherwise.
ACCEL_API int32_t accel_level(void);
ACCEL_API int32_t accel_best_level(void);
ACCEL_API int accel_set_level(int32_t level);
ACCEL_API int32_t accel_has_openmp(void);
ACCEL_API int32_t accel_abi_version(void);

#ifdef __cplusplus
}
#endif
