// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// What the rest of the device has to know about a capture under way.
#pragma once

#include "runtime/runtime.h"

namespace accel_sim {

bool is_capturing(const c10::Stream& stream);
// Whether the operator that this thread runs is recorded and must leave everything outside the capture as it is.
bool is_recorded_only();
// Raises when the current stream of the device is being captured.
void check_not_capturing(const std::string& what, c10::DeviceIndex device);
// Captured work runs on copies of the memory that was there before the capture; nothing outside a capture.
std::optional<c10::Storage> capture_copy_of(const c10::Storage& device_storage);

} // namespace accel_sim
