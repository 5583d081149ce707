// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The loops for Arm's scalable vectors, of whatever length the CPU has.
#include "accel/half.h"
#include "accel/optimizers.h"
#include "level.h"

// After the headers, as in level_v3.cpp.
#if ACCEL_SVE
#pragma GCC target("+sve")
#define ACCEL_LEVEL sve
#include "kernels.inc"
#endif
