// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// torch has kernels of its collectives for CPU, CUDA and PrivateUse1. hpu and xpu, whose real runtimes have their own,
// use those of PrivateUse1. There are none for mps.
#include "distributed/backend.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#include <torch/library.h>

namespace accel_sim {

namespace {

using c10d::ProcessGroup;

// The kernels of PrivateUse1 take the group's backend for PrivateUse1: set the device's own.
void set_privateuse1_backend(const c10::IValue& value) {
  if (!value.isObject()) return;
  const auto group = value.toCustomClass<ProcessGroup>();
  for (const auto& device : group->getDeviceTypes()) {
    if (device == c10::DeviceType::PrivateUse1) return;
  }
  group->setBackend(
      c10::DeviceType::PrivateUse1, ProcessGroup::BackendType::CUSTOM, group->getBackend(config().type));
}

void redispatch_to_privateuse1(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); i++) {
    const auto& value = (*stack)[stack->size() - arguments.size() + i];
    if (arguments[i].name() == "process_group") set_privateuse1_backend(value);
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), stack);
}

// DistributedDataParallel asks for a clock of CUDA; work is done when a call returns, so the host's is right.
void register_timer() {
  auto* registry = c10d::TimerRegistry();
  if (config().type != c10::DeviceType::CUDA || registry->Has(c10::DeviceType::CUDA)) return;
  registry->Register(c10::DeviceType::CUDA, [](c10::Device device) {
    return c10d::TimerRegistry()->Create(c10::DeviceType::CPU, device);
  });
}

} // namespace

void register_collectives() {
  if (config().type == c10::DeviceType::MPS) return;
  register_timer();
  auto* library =
      new torch::Library(torch::Library::IMPL, "c10d", std::make_optional(config().key), __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("c10d::", 0) != 0) continue;
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) continue;
    if (op->hasKernelForDispatchKey(config().key)) continue;
    library->impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&redispatch_to_privateuse1>());
  }
}

} // namespace accel_sim
