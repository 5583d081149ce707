// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Optimizer steps over lists of tensors of any float type. Elements are converted to float32 block by block, in buffers
// that fit the first-level cache, so that memory is read and written once.
#include "accel/optimizers.h"

#include <cmath>
#include <cstring>
#include <initializer_list>

#include "accel_ops.h"
#include "elements.h"
#include "overlap.h"
#include "parallel.h"

namespace accel_ops {
namespace {

constexpr int64_t kBlock = 1024;   // elements that are converted together: 4 KiB of float
constexpr int64_t kGrain = 32768;  // smallest number of elements per thread, as in torch

// One operand of a step, read and written as float32 block by block.
struct Operand {
  void* data;
  int32_t type;
  float buffer[kBlock];

  Operand(void* data, int32_t type) : data(data), type(type) {}  // the buffer is written before it is read

  // Returns n elements as floats: the tensor's own memory, or the buffer.
  float* load(const Level& kernels, int64_t at, int64_t n) {
    return data ? widened(kernels, element(data, at, type), type, buffer, n) : nullptr;
  }

  // Converts the buffer back; float32 was changed in place.
  void store(const Level& kernels, int64_t at, int64_t n) {
    if (data && type != ACCEL_F32) assign(kernels, buffer, at, n);
  }

  void assign(const Level& kernels, const float* values, int64_t at, int64_t n) {
    narrow(kernels, values, element(data, at, type), type, n);
  }
};

void* tensor_at(void* const* list, int64_t index) {
  return list ? list[index] : nullptr;
}

// Returns the kernel that works on these types without conversion, null where there is none.
Step direct_kernel(const accel_tensor_lists& lists, const Steps& steps) {
  if (lists.copies || lists.param_type != lists.grad_type) return nullptr;
  if (lists.param_type == ACCEL_F32) return lists.state_type == ACCEL_F32 ? steps.f32_f32 : nullptr;
  if (lists.param_type != ACCEL_BF16) return nullptr;
  return lists.state_type == ACCEL_F32 ? steps.bf16_f32 : lists.state_type == ACCEL_BF16 ? steps.bf16_bf16 : nullptr;
}

// Steps on elements [begin, end) of tensor `index`, converted block by block.
void step_converted(
    const accel_tensor_lists& lists, int64_t index, int64_t begin, int64_t end, Step step, const void* op) {
  const Level& kernels = level();
  Operand p(lists.params[index], lists.param_type), g(lists.grads[index], lists.grad_type);
  Operand first(tensor_at(lists.first, index), lists.state_type);
  Operand second(tensor_at(lists.second, index), lists.state_type);
  Operand copy(tensor_at(lists.copies, index), lists.copy_type);
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t n = end - at < kBlock ? end - at : kBlock;
    float* const states[] = {first.load(kernels, at, n), second.load(kernels, at, n)};
    step(op, p.load(kernels, at, n), g.load(kernels, at, n), states[0], states[1], n);
    p.store(kernels, at, n);
    first.store(kernels, at, n);
    second.store(kernels, at, n);
    // The copy is made of the parameter as stored, that is rounded to its type.
    if (copy.data) copy.assign(kernels, p.load(kernels, at, n), at, n);
  }
}

// Steps on elements [begin, end) of tensor `index`.
void step_part(
    const accel_tensor_lists& lists, int64_t index, int64_t begin, int64_t end, const Steps& steps, const void* op) {
  const Step step = direct_kernel(lists, steps);
  if (!step) return step_converted(lists, index, begin, end, steps.f32_f32, op);
  void* const first = element(tensor_at(lists.first, index), begin, lists.state_type);
  void* const second = element(tensor_at(lists.second, index), begin, lists.state_type);
  step(op, element(lists.params[index], begin, lists.param_type), element(lists.grads[index], begin, lists.grad_type),
       first, second, end - begin);
}

// Calls work(index, begin, end) for parts of tensors, in threads. All tensors together are divided into equal parts, so
// that hundreds of small tensors cost one start of the threads.
template <class Work>
void for_each_part(const accel_tensor_lists& lists, const Work& work) {
  int64_t total = 0;
  for (int64_t i = 0; i < lists.tensors; ++i) total += lists.sizes[i];
  parallel_for(total, kGrain, lists.threads, [&](int64_t begin, int64_t end) {
    int64_t start = 0;
    for (int64_t i = 0; i < lists.tensors && start < end; start += lists.sizes[i++]) {
      const int64_t first = begin > start ? begin - start : 0;
      const int64_t last = end - start < lists.sizes[i] ? end - start : lists.sizes[i];
      if (first < last) work(i, first, last);
    }
  });
}

int run(const accel_tensor_lists& lists, const Steps& steps, const void* op) {
  for (const int32_t type : {lists.param_type, lists.grad_type, lists.state_type, lists.copy_type})
    if (!is_float_type(type)) return ACCEL_BAD_TYPE;
  if (const int status = check_overlap(lists); status != ACCEL_OK) return status;
  for_each_part(lists, [&](int64_t i, int64_t first, int64_t last) { step_part(lists, i, first, last, steps, op); });
  return ACCEL_OK;
}

// Instead of pow(), whose symbol version of glibc 2.29 older machines lack.
double power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1, base *= base)
    if (exponent & 1) result *= base;
  return result;
}

float to_float(double value) {
  return static_cast<float>(value);
}

accel::Adam adam_functor(const accel_adam_options& o) {
  const double correction1 = o.bias_correction ? 1 - power(o.beta1, o.step) : 1;
  const double correction2 = o.bias_correction ? 1 - power(o.beta2, o.step) : 1;
  return {to_float(o.beta1), to_float(1 - o.beta1), to_float(o.beta2), to_float(1 - o.beta2),
          to_float(o.lr / correction1), to_float(1 / std::sqrt(correction2)), to_float(o.eps),
          to_float(o.decoupled ? 1 - o.lr * o.weight_decay : 1), to_float(o.decoupled ? 0 : o.weight_decay),
          to_float(o.grad_factor)};
}

} // namespace
} // namespace accel_ops

using namespace accel_ops;

int accel_adam(const accel_tensor_lists* lists, const accel_adam_options* options) {
  const auto op = adam_functor(*options);
  return run(*lists, level().adam, &op);
}

int accel_adam_rollback(const accel_tensor_lists* lists, const accel_adam_options* options) {
  const accel::AdamRollback op{adam_functor(*options)};
  return run(*lists, level().adam_rollback, &op);
}

int accel_adagrad(const accel_tensor_lists* lists, double lr, double eps, double weight_decay, double grad_factor) {
  const accel::Adagrad op{to_float(lr), to_float(eps), to_float(weight_decay), to_float(grad_factor)};
  return run(*lists, level().adagrad, &op);
}

int accel_lion(
    const accel_tensor_lists* lists, double lr, double beta1, double beta2, double weight_decay, double grad_factor,
    double at_zero) {
  const accel::Lion op{to_float(lr), to_float(beta1), to_float(1 - beta1), to_float(beta2), to_float(1 - beta2),
                       to_float(1 - lr * weight_decay), to_float(grad_factor), to_float(at_zero)};
  return run(*lists, level().lion, &op);
}
