// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The loops for x86-64-v4.
#include "accel/half.h"
#include "accel/optimizers.h"
#include "level.h"

// After the headers: one of their functions that is not inlined exists once in the library and must run on every level.
#if ACCEL_X86_LEVELS
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define ACCEL_LEVEL v4
#include "kernels.inc"
#endif
