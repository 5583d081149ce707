// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Hardware-like mode: what holds for real devices and not for the plain simulation. Sums in another order, denormals
// that become zero, errors that arrive late. The allocator of the mode is that of dry mode (dry.h).
#pragma once

#include "aten.h"

namespace accel_sim {

void enable_hardware();
// Takes time and prints on both outputs, as drivers do at the first use of a device.
void start_as_hardware(c10::DeviceIndex index);

// Runs a kernel of the host on host tensors as a device would: without denormals, and sums in another order.
void run_as_hardware(const c10::OperatorHandle& op, c10::DispatchKey host_key, torch::jit::Stack* stack);

// An index out of range is found by the device, which has not run yet: the call returns, and the error waits for the host's next
// wait. arguments: those of the failed call, whose place on the stack the results take. False: this error is raised at once.
bool fails_late(
    const c10::OperatorHandle& op, const std::string& error, const torch::jit::Stack& arguments, torch::jit::Stack* stack);

} // namespace accel_sim
