# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Errors of the collectives."""

from __future__ import annotations

from accel_core.errors import AccelError


class CollectiveFailed(AccelError, RuntimeError):
    """A rank was lost, or did not arrive in time. The process group cannot be used any more."""

    code = "ACC-520"


class CollectiveMismatch(AccelError, RuntimeError, ValueError):
    """Ranks of one process group called different collectives, or with different shapes or types."""

    code = "ACC-521"


class OneCCLFailed(AccelError, RuntimeError):
    """oneCCL cannot be loaded, or one of its calls failed."""

    code = "ACC-522"


class StoreTampered(AccelError, RuntimeError):
    """torch's store has something of another rank that no rank of this job wrote."""

    code = "ACC-523"
