// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// What the files of this extension ask of each other.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

namespace acme {

constexpr auto kType = c10::DeviceType::PrivateUse1;

c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index);  // raises for an index without a device
c10::Allocator* allocator();

const at::Generator& default_generator(c10::DeviceIndex index);  // -1: of the current device
at::Generator new_generator(c10::DeviceIndex index);
at::Generator host_generator(const at::Generator& generator);  // the host's, in which its numbers are drawn

}  // namespace acme
