// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Calls the library without torch and Python:
//
//     driver [LEVEL]   runs every kernel and prints a hash of the bits of each result
//
// The inputs are the same on every machine, and so has to be the output: test_driver.py has its hash. Status: 2 where
// the machine lacks the level, 3 where memory is short, 4 where header and library are of different versions.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel_ops.h"

enum { TENSORS = 3, LARGEST = 70001 };

static const int64_t kSizes[TENSORS] = {1, 1027, LARGEST};
static uint64_t g_state;

// Pseudo-random numbers in [-2, 2) of 8 bits: exact in all types.
static float next_number(void) {
  g_state = g_state * 6364136223846793005u + 1442695040888963407u;
  return (float)((int32_t)(g_state >> 56) - 128) / 64.0f;
}

static uint16_t half_of(float value, int32_t type) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (type == ACCEL_BF16) return (uint16_t)(bits >> 16);
  if (value == 0.0f) return (uint16_t)(bits >> 16 & 0x8000u);
  return (uint16_t)((bits >> 16 & 0x8000u) | (((bits >> 23 & 0xffu) - 112u) << 10) | (bits >> 13 & 0x3ffu));
}

static void fill(void* data, int64_t size, int32_t type, int positive) {
  for (int64_t i = 0; i < size; ++i) {
    float value = next_number();
    if (positive) value = value < 0.0f ? -value : value;
    if (type == ACCEL_F32)
      ((float*)data)[i] = value;
    else
      ((uint16_t*)data)[i] = half_of(value, type);
  }
}

static uint64_t hash(uint64_t seed, const void* data, size_t bytes) {
  const unsigned char* byte = data;
  for (size_t i = 0; i < bytes; ++i) seed = (seed ^ byte[i]) * 1099511628211u;
  return seed;
}

typedef struct {
  void* data[5][TENSORS];
  accel_tensor_lists lists;
} Case;

static void prepare(Case* c, int copies, int32_t param, int32_t grad, int32_t state, int32_t threads) {
  const int32_t types[5] = {param, grad, state, state, ACCEL_BF16};
  g_state = 20261121u;
  for (int role = 0; role < 5; ++role)
    for (int i = 0; i < TENSORS; ++i) {
      c->data[role][i] = malloc((size_t)kSizes[i] * 4);
      if (!c->data[role][i]) exit(3);
      memset(c->data[role][i], 0, (size_t)kSizes[i] * 4);
      // States are positive: Adam takes their root, and the bits of a NaN differ between machines.
      if (role < 4) fill(c->data[role][i], kSizes[i], types[role], role >= 2);
    }
  const accel_tensor_lists lists = {.tensors = TENSORS,
                                    .sizes = kSizes,
                                    .params = c->data[0],
                                    .grads = c->data[1],
                                    .first = c->data[2],
                                    .second = c->data[3],
                                    .copies = copies ? c->data[4] : NULL,
                                    .param_type = param,
                                    .grad_type = grad,
                                    .state_type = state,
                                    .copy_type = ACCEL_BF16,
                                    .threads = threads};
  c->lists = lists;
}

static void report(const char* kernel, Case* c, int status) {
  uint64_t seed = 14695981039346656037u;
  for (int role = 0; role < 5; ++role)
    for (int i = 0; i < TENSORS; ++i) {
      seed = hash(seed, c->data[role][i], (size_t)kSizes[i] * 4);
      free(c->data[role][i]);
    }
  printf("%s%s %d%d%d %d %016llx\n", kernel, c->lists.copies ? "" : " without copy", c->lists.param_type,
         c->lists.grad_type, c->lists.state_type, status, (unsigned long long)seed);
}

static void all(int copies, int32_t param, int32_t grad, int32_t state, int32_t threads) {
  Case c;
  const accel_adam_options adamw = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1,
                                    .grad_factor = 0.5, .step = 7, .decoupled = 1, .bias_correction = 1};
  const accel_adam_options adam = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1,
                                   .grad_factor = 1.0, .step = 7};
#define STEP(kernel, ...) \
  prepare(&c, copies, param, grad, state, threads), report(kernel, &c, __VA_ARGS__)
  STEP("adamw", accel_adam(&c.lists, &adamw));
  STEP("adam", accel_adam(&c.lists, &adam));
  STEP("adam_rollback", accel_adam_rollback(&c.lists, &adamw));
  STEP("adagrad", accel_adagrad(&c.lists, 0.01, 1e-8, 0.1, 0.5));
  STEP("lion", accel_lion(&c.lists, 0.01, 0.9, 0.99, 0.1, 0.5, 0.0));
}

int main(int count, char** arguments) {
  if (accel_abi_version() != ACCEL_ABI_VERSION) return 4;
  if (count > 1 && accel_set_level(atoi(arguments[1])) != ACCEL_OK) return 2;
  for (int32_t type = ACCEL_F32; type <= ACCEL_F16; ++type) {
    all(1, type, type, type, 2);
    all(1, type, ACCEL_F32, ACCEL_F32, 1);
  }
  for (int32_t type = ACCEL_F32; type <= ACCEL_F16; ++type) {
    all(0, type, type, type, 2);
    all(0, type, type, ACCEL_F32, 1);
  }
  for (int32_t type = ACCEL_F32; type <= ACCEL_F16; ++type) {
    Case c;
    double sum = 0;
    prepare(&c, 1, type, type, type, 2);
    const int status = accel_sum_of_squares(&c.lists, &sum);
    printf("sum_of_squares %d %d %016llx\n", type, status, (unsigned long long)hash(1, &sum, sizeof sum));
    for (int role = 0; role < 5; ++role)
      for (int i = 0; i < TENSORS; ++i) free(c.data[role][i]);
  }
  return 0;
}
