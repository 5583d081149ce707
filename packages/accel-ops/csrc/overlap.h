// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "accel_ops.h"

namespace accel_ops {

// Returns ACCEL_OVERLAP where a written tensor shares memory with any other, ACCEL_NO_MEMORY where there is no memory
// for the check.
int check_overlap(const accel_tensor_lists& lists);

} // namespace accel_ops
