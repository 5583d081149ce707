// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The loops for x86-64-v4.
#include "accel/half.h"
#include "accel/optimizers.h"
#include "level.h"

// Below the headers: a function of theirs that is not inlined is one for all levels.
#if ACCEL_X86_LEVELS
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define ACCEL_LEVEL v4
#include "kernels.inc"
#endif
