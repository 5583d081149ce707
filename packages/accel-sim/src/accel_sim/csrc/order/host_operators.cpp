// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Race detection for operators on host tensors: each CPU kernel is wrapped in a check of its tensors,
// of which the page-locked ones may be under way to or from a device.
#include "order/race.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

namespace accel_sim {

namespace {

using torch::jit::Stack;

void check_arguments(const c10::OperatorHandle& op, const Stack& stack) {
  const auto& arguments = op.schema().arguments();
  const auto first = stack.size() - arguments.size();
  const auto name = c10::toString(op.operator_name());
  for (size_t i = 0; i < arguments.size(); i++) {
    const bool write = arguments[i].alias_info() && arguments[i].alias_info()->isWrite();
    if (arguments[i].alias_info() && !write) continue;  // a view
    const auto& value = stack[first + i];
    const auto touch = [&](const at::Tensor& tensor) {
      if (tensor.defined()) host_touches(name, arguments[i].name().c_str(), tensor, write);
    };
    if (value.isTensor()) {
      touch(value.toTensor());
    } else if (value.isTensorList()) {
      for (const auto& item : value.toTensorVector()) touch(item);
    }
  }
}

class CheckedKernel final : public c10::OperatorKernel {
 public:
  explicit CheckedKernel(c10::SafeKernelFunction kernel) : kernel_(std::move(kernel)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    if (host_may_race() && !in_device_work()) check_arguments(op, *stack);
    kernel_.callBoxed(op, keys, stack);
  }

 private:
  c10::SafeKernelFunction kernel_;
};

// Operators whose arguments have no boxed form, and those that read metadata only.
bool is_excluded(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name().name;
  if (name == "aten::set_" || name == "aten::resize_" || name == "aten::_resize_output_") return true;
  for (const auto& argument : op.schema().arguments()) {
    const auto kind = argument.type()->kind();
    if (kind == c10::TypeKind::StorageType || kind == c10::TypeKind::QSchemeType) return true;
  }
  return false;
}

struct IgnoreWarnings final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

} // namespace

void watch_host_operators() {
  IgnoreWarnings silent;
  c10::WarningUtils::WarningHandlerGuard quiet(&silent);  // of overridden kernels
  auto* library = new torch::Library(
      torch::Library::IMPL, "aten", std::make_optional(c10::DispatchKey::CPU), __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = dispatcher.findOp(name);
    const bool on_cpu = op && op->hasSchema() &&
        (op->hasKernelForDispatchKey(c10::DispatchKey::CPU) || name.name == "aten::copy_");
    if (!on_cpu || is_excluded(*op)) continue;
    auto kernel = op->getComputedKernelForDispatchKey(c10::DispatchKey::CPU);
    library->impl(
        c10::toString(name).c_str(),
        torch::CppFunction::makeFromBoxedFunctor(std::make_unique<CheckedKernel>(std::move(kernel))));
  }
}

} // namespace accel_sim
