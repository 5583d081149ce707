// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// All kernels, for the compilers that make one image of them.
#pragma once

#include "accel/multi_tensor.h"
#include "accel/quantize.h"
