# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Two devices, always there; GOOD_VISIBLE_DEVICES shows a process some of them."""

from accel_core.vendor import Confirmation, Evidence, module_exists


def evidence() -> Evidence:
    """Nothing has to be looked for."""
    if not module_exists("torch"):
        return Evidence(runtime=False, hardware=True, reason="torch is not installed")
    return Evidence(runtime=True, hardware=True, reason="the devices are pretended")


def confirm() -> Confirmation:
    """Two, or those that are visible."""
    from accel_good import runtime

    return Confirmation(runtime.count_visible(), "two devices are pretended")
