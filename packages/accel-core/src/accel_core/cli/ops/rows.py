# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""One row of the output of `accel ops`."""

from __future__ import annotations

from dataclasses import dataclass

SERVED, MISSING, OK, FAILED = "served", "missing", "ok", "failed"


@dataclass(frozen=True)
class Row:
    """One op.

    builder: name of the builder class.
    op:      upstream's name of the op (`fused_adam`); `deepspeed_not_implemented` for a missing one.
    state:   served or missing; ok or failed once it was tried.
    reason:  where the op comes from, or why it is missing or failed.
    seconds: the time that loading took; None if it was not loaded.
    """

    builder: str
    op: str
    state: str
    reason: str
    seconds: float | None = None
