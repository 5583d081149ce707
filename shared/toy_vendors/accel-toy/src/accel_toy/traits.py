# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Traits of the toy: what it cannot do, and why."""

from accel_core.vendor import Support, Trait

TRAITS = {
    "CPUAdamBuilder": Trait(Support.NOT_IMPLEMENTED, "one optimizer is enough for a toy"),
    "graphs": Trait(Support.UNSUPPORTED, "host memory has no graphs to capture"),
}
