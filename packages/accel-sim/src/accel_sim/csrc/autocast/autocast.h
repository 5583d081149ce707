// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Autocast on the device. In a folder of its own because torch's lists of operators come with all of ATen's headers,
// which take several seconds to compile.
#pragma once

namespace accel_sim {

void register_autocast();  // nothing where torch has autocast kernels for the device type

} // namespace accel_sim
