// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Operators that accelerators have in dtypes that the CPU's kernels lack: computed in a wider one, and rounded once.
#include "aten/aten.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace accel_sim {

namespace {

using at::ScalarType;
using torch::jit::Stack;

// The dtype to compute in; the same one where the CPU's kernel has it.
ScalarType wider(const c10::OperatorHandle& op, ScalarType given) {
  const auto& name = op.operator_name().name;
  if (name == "aten::histc") return c10::isIntegralType(given, /*includeBool=*/false) ? at::kDouble : given;
  if (given == at::kHalf) return at::kFloat;
  return given == at::kComplexHalf ? at::kComplexFloat : given;
}

// The dtype of a result, for arguments that were given in a narrower one.
ScalarType narrower(ScalarType given, ScalarType result) {
  if (c10::isIntegralType(given, false)) return given;
  if (result == at::kFloat) return at::kHalf;
  return result == at::kComplexFloat ? at::kComplexHalf : result;
}

void compute_wider(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const auto first = stack->size() - op.schema().arguments().size();
  const auto given = (*stack)[first].toTensor().scalar_type();
  const auto wide = wider(op, given);
  if (wide == given) return run_on_device(op, stack);
  for (size_t i = first; i < stack->size(); i++) {
    change_tensors((*stack)[i], [&](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.to(wider(op, tensor.scalar_type())) : tensor;
    });
  }
  op.callBoxed(stack);
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); i++) {
    change_tensors((*stack)[i], [&](const at::Tensor& tensor) {
      return tensor.to(narrower(given, tensor.scalar_type()));
    });
  }
}

} // namespace

void register_wider() {
  auto* library = new torch::Library(torch::Library::IMPL, "aten", std::make_optional(config().key), __FILE__, __LINE__);
  for (const auto* name : {"histc", "_fft_r2c", "_fft_c2r", "_fft_c2c"}) {
    library->impl(name, torch::CppFunction::makeFromBoxedFunction<&compute_wider>());
  }
}

} // namespace accel_sim
