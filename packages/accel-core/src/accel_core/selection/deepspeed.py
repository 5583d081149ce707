# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What selection needs to know of DeepSpeed; `accel_core.upstream` provides it, and a test can."""

from __future__ import annotations

from typing import Any, Protocol

from accel_core.vendor import Probe


class Backend(Probe, Protocol):
    """Whether a device is here that only DeepSpeed's own backend could serve."""

    @property
    def privateuse1(self) -> str:
        """The name under which its runtime claims torch's PrivateUse1 slot, empty if it does not."""
        ...

    @property
    def yields_to(self) -> tuple[str, ...]:
        """Keys that win over it wherever they are present."""
        ...


class DeepSpeed(Protocol):
    """The installed DeepSpeed, or its absence."""

    def keys(self) -> frozenset[str] | None:
        """Return the accelerators that it has a backend for; None when it is not installed."""
        ...

    def backend(self, key: str, variant: str) -> Backend:
        """Return the probe for an entry of the cascade that no installed package serves."""
        ...

    def accelerator(self, key: str) -> Any:
        """Return a new object of DeepSpeed's own accelerator class for a key."""
        ...

    def load(self) -> None:
        """Import deepspeed, whose import asks for the accelerator."""
        ...

    def importing(self) -> bool:
        """Whether `import deepspeed` has begun and not ended."""
        ...
