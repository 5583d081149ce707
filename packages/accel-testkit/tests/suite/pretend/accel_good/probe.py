# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Two devices, always there."""

from accel_core.vendor import Confirmation, Evidence


def evidence() -> Evidence:
    """Nothing has to be looked for."""
    return Evidence(runtime=True, hardware=True, reason="the devices are pretended")


def confirm() -> Confirmation:
    """Two."""
    return Confirmation(2, "two devices are pretended")
