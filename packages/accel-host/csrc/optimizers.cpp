// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Steps of optimizers over lists of tensors of any float type. Elements that are not float32 pass through small buffers
// that stay in the first-level cache, so that memory is read and written once.
#include "accel/optimizers.h"

#include <cmath>
#include <cstring>

#include "accel_host.h"
#include "level.h"
#include "overlap.h"
#include "parallel.h"

namespace accel_host {
namespace {

constexpr int64_t kBlock = 1024;   // elements that are converted together: 4 KiB of float
constexpr int64_t kGrain = 32768;  // elements a thread at least, as torch has it

bool known(int32_t type) {
  return type == ACCEL_F32 || type == ACCEL_BF16 || type == ACCEL_F16;
}

// One operand of a step, seen as floats block by block.
struct Operand {
  void* data;
  int32_t type;
  float buffer[kBlock];

  Operand(void* data, int32_t type) : data(data), type(type) {}  // the buffer is written before it is read

  float* open(const Level& kernels, int64_t at, int64_t n) {
    if (!data) return nullptr;
    if (type == ACCEL_F32) return static_cast<float*>(data) + at;
    const auto* halves = static_cast<const uint16_t*>(data) + at;
    (type == ACCEL_BF16 ? kernels.from_bf16 : kernels.from_f16)(halves, buffer, n);
    return buffer;
  }

  // Floats are in place already.
  void close(const Level& kernels, int64_t at, int64_t n) {
    if (!direct()) put(kernels, buffer, at, n);
  }

  void put(const Level& kernels, const float* values, int64_t at, int64_t n) {
    if (type == ACCEL_F32)
      std::memcpy(static_cast<float*>(data) + at, values, static_cast<size_t>(n) * sizeof(float));
    else
      (type == ACCEL_BF16 ? kernels.to_bf16 : kernels.to_f16)(values, static_cast<uint16_t*>(data) + at, n);
  }

  bool direct() const { return !data || type == ACCEL_F32; }
};

void* entry(void* const* list, int64_t index) {
  return list ? list[index] : nullptr;
}

int64_t width(int32_t type) {
  return type == ACCEL_F32 ? 4 : 2;
}

void* from(void* data, int64_t at, int32_t type) {
  return data ? static_cast<char*>(data) + at * width(type) : nullptr;
}

// The loop for these very types, null where there is none.
Step direct(const accel_tensor_lists& lists, const Steps& steps) {
  if (lists.copies || lists.param_type != lists.grad_type) return nullptr;
  if (lists.param_type == ACCEL_F32) return lists.state_type == ACCEL_F32 ? steps.f32_f32 : nullptr;
  if (lists.param_type != ACCEL_BF16) return nullptr;
  return lists.state_type == ACCEL_F32 ? steps.bf16_f32 : lists.state_type == ACCEL_BF16 ? steps.bf16_bf16 : nullptr;
}

// Part [begin, end) of tensor `index`, through buffers.
void step_blocks(const accel_tensor_lists& lists, int64_t index, int64_t begin, int64_t end, Step step, const void* op) {
  const Level& kernels = level();
  Operand p(lists.params[index], lists.param_type), g(lists.grads[index], lists.grad_type);
  Operand first(entry(lists.first, index), lists.state_type), second(entry(lists.second, index), lists.state_type);
  Operand copy(entry(lists.copies, index), lists.copy_type);
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t n = end - at < kBlock ? end - at : kBlock;
    step(op, p.open(kernels, at, n), g.open(kernels, at, n), first.open(kernels, at, n), second.open(kernels, at, n), n);
    p.close(kernels, at, n);
    first.close(kernels, at, n);
    second.close(kernels, at, n);
    // The copy is of what the parameter holds now: rounded, if that is not float.
    if (copy.data) copy.put(kernels, p.open(kernels, at, n), at, n);
  }
}

// Part [begin, end) of tensor `index`.
void step_part(const accel_tensor_lists& lists, int64_t index, int64_t begin, int64_t end, const Steps& steps, const void* op) {
  const Step step = direct(lists, steps);
  if (!step) return step_blocks(lists, index, begin, end, steps.f32_f32, op);
  step(op, from(lists.params[index], begin, lists.param_type), from(lists.grads[index], begin, lists.grad_type),
       from(entry(lists.first, index), begin, lists.state_type), from(entry(lists.second, index), begin, lists.state_type),
       end - begin);
}

// Calls work(index, begin, end) for parts of tensors. They are one row of elements, cut into equal parts: three hundred
// small ones cost one start of threads.
template <class Work>
void parts(const accel_tensor_lists& lists, const Work& work) {
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
  if (!known(lists.param_type) || !known(lists.grad_type) || !known(lists.state_type) || !known(lists.copy_type))
    return ACCEL_BAD_TYPE;
  if (const int status = overlap(lists); status != ACCEL_OK) return status;
  parts(lists, [&](int64_t i, int64_t first, int64_t last) { step_part(lists, i, first, last, steps, op); });
  return ACCEL_OK;
}

// pow() of glibc 2.29 would keep the library from older machines.
double power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1, base *= base)
    if (exponent & 1) result *= base;
  return result;
}

float single(double value) {
  return static_cast<float>(value);
}

accel::Adam adam_of(const accel_adam_options& o) {
  const double correction1 = o.bias_correction ? 1 - power(o.beta1, o.step) : 1;
  const double correction2 = o.bias_correction ? 1 - power(o.beta2, o.step) : 1;
  return {single(o.beta1), single(1 - o.beta1), single(o.beta2), single(1 - o.beta2), single(o.lr / correction1),
          single(1 / std::sqrt(correction2)), single(o.eps), single(o.decoupled ? 1 - o.lr * o.weight_decay : 1),
          single(o.decoupled ? 0 : o.weight_decay), single(o.grad_factor)};
}

} // namespace
} // namespace accel_host

using namespace accel_host;

int accel_adam(const accel_tensor_lists* lists, const accel_adam_options* options) {
  const auto op = adam_of(*options);
  return run(*lists, level().adam, &op);
}

int accel_adam_single_tensor(const accel_adam_arguments* arguments) {
  const auto& a = *arguments;
  accel_tensor_lists lists{};
  lists.tensors = 1;
  lists.sizes = &a.size;
  lists.params = &a.param;
  lists.grads = &a.grad;
  lists.first = &a.first;
  lists.second = &a.second;
  lists.param_type = a.param_type;
  lists.grad_type = a.grad_type;
  lists.state_type = a.state_type;
  lists.copy_type = ACCEL_F32;
  lists.threads = a.threads;
  return accel_adam(&lists, &a.options);
}

int accel_adam_rollback(const accel_tensor_lists* lists, const accel_adam_options* options) {
  const accel::AdamRollback op{adam_of(*options)};
  return run(*lists, level().adam_rollback, &op);
}

int accel_adagrad(const accel_tensor_lists* lists, double lr, double eps, double weight_decay, double grad_factor) {
  const accel::Adagrad op{single(lr), single(eps), single(weight_decay), single(grad_factor)};
  return run(*lists, level().adagrad, &op);
}

int accel_lion(
    const accel_tensor_lists* lists, double lr, double beta1, double beta2, double weight_decay, double grad_factor) {
  const accel::Lion op{single(lr), single(beta1), single(1 - beta1), single(beta2), single(1 - beta2),
                       single(1 - lr * weight_decay), single(grad_factor)};
  return run(*lists, level().lion, &op);
}

int accel_sgd(
    const accel_tensor_lists* lists, double lr, double momentum, double dampening, double weight_decay,
    double grad_factor, int32_t nesterov, int32_t first_step) {
  const accel::Sgd op{single(lr), single(momentum), single(first_step ? 1 : 1 - dampening), single(weight_decay),
                      single(grad_factor), nesterov != 0};
  return run(*lists, level().sgd, &op);
}

int accel_zero(const accel_tensor_lists* lists) {
  const int32_t type = lists->state_type;
  if (!known(type)) return ACCEL_BAD_TYPE;
  parts(*lists, [&](int64_t i, int64_t first, int64_t last) {
    std::memset(from(lists->first[i], first, type), 0, static_cast<size_t>((last - first) * width(type)));
  });
  return ACCEL_OK;
}
