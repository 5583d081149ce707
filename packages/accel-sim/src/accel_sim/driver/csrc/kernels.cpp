// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The kernels, as functions of the host.
#include "accel/kernels.h"
