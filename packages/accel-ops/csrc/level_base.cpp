// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The loops for every machine of the compiler's target: x86-64-v1, or another architecture's.
#include "accel/half.h"
#include "accel/optimizers.h"
#include "level.h"

#define ACCEL_LEVEL base
#include "kernels.inc"
