# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Errors of the collectives."""

from __future__ import annotations

from accel_core.errors import AccelError


class CollectiveFailed(AccelError, RuntimeError, code="ACC-520"):
    """A rank was lost, or did not arrive in time. The process group cannot be used any more."""


class CollectiveMismatch(AccelError, RuntimeError, ValueError, code="ACC-521"):
    """Ranks of one process group called different collectives, or with different shapes or types."""


class OneCCLFailed(AccelError, RuntimeError, code="ACC-522"):
    """oneCCL cannot be loaded, or one of its calls failed."""


class StoreTampered(AccelError, RuntimeError, code="ACC-523"):
    """torch's store has something of another rank that no rank of this job wrote."""
