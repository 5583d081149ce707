# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Devices are always there; nobody must ask."""

from __future__ import annotations

from accel_core.vendor import Confirmation, Evidence


def evidence() -> Evidence:
    """The toy driver is part of the package."""
    return Evidence(runtime=True, hardware=True, reason="the toy driver is part of accel-toy-interface1")


def confirm() -> Confirmation:
    """Two devices."""
    return Confirmation(2, "the toy driver counts 2 devices")
