// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Calls the observers before and after each operator.
#include "aten/aten.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace accel_sim {

namespace {

using torch::jit::Stack;

// The device that an operator works on: that of its first device tensor, or the one that it is to make one on.
c10::DeviceIndex device_of(const Stack& arguments) {
  for (const auto& value : arguments) {
    if (value.isTensor() && is_simulated(value.toTensor())) return value.toTensor().device().index();
    if (value.isDevice() && is_simulated(value.toDevice())) return index_of(value.toDevice());
    if (value.isTensorList()) {
      for (const auto& item : value.toTensorVector()) {
        if (is_simulated(item)) return item.device().index();
      }
    }
  }
  return current_device();
}

} // namespace

std::vector<at::Tensor> tensors_of(const Stack& values) {
  std::vector<at::Tensor> result;
  for (auto value : values) {
    change_tensors(value, [&](const at::Tensor& tensor) {
      result.push_back(tensor);
      return tensor;
    });
  }
  return result;
}

void run_observed(
    const c10::OperatorHandle& op, Stack* stack,
    c10::function_ref<void(const c10::OperatorHandle&, Stack*)> run) {
  check_fork();
  if (!Observer::any()) return run(op, stack);
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  const Stack arguments(first, stack->end());
  const Work work{op, arguments, current_stream(device_of(arguments))};
  Observer::each([&](auto& observer) { observer.before_work(work); });
  {
    DeviceWorkGuard inside;
    run(op, stack);
  }
  const Stack results(stack->end() - static_cast<std::ptrdiff_t>(op.schema().returns().size()), stack->end());
  Observer::each([&](auto& observer) { observer.after_work(work, results); });
}

} // namespace accel_sim
