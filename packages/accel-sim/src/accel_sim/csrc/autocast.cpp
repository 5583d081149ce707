// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Boxed autocast kernels, from torch's own lists of operators by precision. These come with all of ATen's headers, which
// take several seconds to compile.
#include "aten.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/library.h>

namespace accel_sim {

namespace {

namespace autocast = at::autocast;

std::string full_name(const char* op, const char* overload = "") {
  return *overload ? std::string("aten::") + op + "." + overload : std::string("aten::") + op;
}

bool eligible(const at::Tensor& tensor) {
  return is_simulated(tensor) && tensor.is_floating_point() && tensor.scalar_type() != at::kDouble;
}

void cast_and_call(const c10::OperatorHandle& op, Stack* stack, at::ScalarType to) {
  c10::impl::ExcludeDispatchKeyGuard off(c10::DispatchKeySet(config().autocast_key));
  for (size_t i = stack->size() - op.schema().arguments().size(); i < stack->size(); i++) {
    change_tensors((*stack)[i], [&](const at::Tensor& t) {
      return t.defined() ? autocast::cached_cast(to, t, config().type) : t;
    });
  }
  op.callBoxed(stack);
}

void lower_precision(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  cast_and_call(op, stack, autocast::get_autocast_dtype(config().type));
}

void full_precision(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  cast_and_call(op, stack, at::kFloat);
}

// Reductions: the result is float32 unless the caller says otherwise.
void full_precision_result(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard off(c10::DispatchKeySet(config().autocast_key));
  const auto& arguments = op.schema().arguments();
  const auto first = stack->size() - arguments.size();
  if ((*stack)[first].isTensor() && eligible((*stack)[first].toTensor())) {
    for (size_t i = 0; i < arguments.size(); i++) {
      auto& value = (*stack)[first + i];
      if (arguments[i].name() == "dtype" && value.isNone()) value = static_cast<int64_t>(at::kFloat);
    }
  }
  op.callBoxed(stack);
}

void widest(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  auto to = autocast::get_autocast_dtype(config().type);
  for (size_t i = stack->size() - op.schema().arguments().size(); i < stack->size(); i++) {
    each_tensor((*stack)[i], [&](const at::Tensor& t) {
      if (eligible(t) && t.scalar_type() == at::kFloat) to = at::kFloat;
    });
  }
  cast_and_call(op, stack, to);
}

template <c10::BoxedKernel::BoxedKernelFunction_withDispatchKeys* function>
void set_policy(torch::Library& library, const std::vector<std::string>& names) {
  for (const auto& name : names) {
    if (c10::Dispatcher::singleton().findOp(torch::jit::parseName(name))) {
      library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<function>());
    }
  }
}

} // namespace

#define SIM_NAME_OF(...) full_name(SIM_PICK(__VA_ARGS__, SIM_TWO, SIM_ONE)(__VA_ARGS__)),
#define SIM_PICK(_1, _2, CHOSEN, ...) CHOSEN
#define SIM_ONE(OP) #OP
#define SIM_TWO(OP, OVERLOAD) #OP, #OVERLOAD
#define SIM_SECOND(FUNCTION, NAME, ...) full_name(NAME),

void register_autocast() {
  if (c10::Dispatcher::singleton().findOp({"aten::mm", ""})->hasKernelForDispatchKey(config().autocast_key)) return;
  library(config().autocast_key, "_").fallback(torch::CppFunction::makeFallthrough());
  auto& kernels = library(config().autocast_key);
  set_policy<&lower_precision>(kernels, {AT_FORALL_LOWER_PRECISION_FP(SIM_NAME_OF)});
  set_policy<&full_precision>(kernels, {AT_FORALL_FP32(SIM_NAME_OF)});
  set_policy<&full_precision>(kernels, {AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(SIM_SECOND)});
  set_policy<&full_precision_result>(kernels, {AT_FORALL_FP32_SET_OPT_DTYPE(SIM_NAME_OF)});
  set_policy<&widest>(kernels, {AT_FORALL_PROMOTE(SIM_NAME_OF)});
}

} // namespace accel_sim
