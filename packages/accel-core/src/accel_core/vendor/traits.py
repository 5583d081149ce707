# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Traits: what a device cannot do, each with a reason that errors, skipped checks and docs show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Support(Enum):
    """Why a device lacks a feature."""

    #: Possible on the device, but not implemented in this package.
    NOT_IMPLEMENTED = "not implemented"
    #: The device or its runtime cannot do it.
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True)
class Trait:
    """One thing that a device cannot do."""

    support: Support
    reason: str

    @classmethod
    def unsupported(cls, reason: str) -> Trait:
        """Return a trait for what the device or its runtime cannot do."""
        return cls(Support.UNSUPPORTED, reason)

    @classmethod
    def not_implemented(cls, reason: str) -> Trait:
        """Return a trait for what is possible on the device but not implemented."""
        return cls(Support.NOT_IMPLEMENTED, reason)


Traits = Mapping[str, Trait]
