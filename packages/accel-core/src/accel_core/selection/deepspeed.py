# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The interface through which the selection uses DeepSpeed; `accel_core.upstream` implements it."""

from __future__ import annotations

from typing import Any, Protocol

from accel_core.vendor import Probe


class Backend(Probe, Protocol):
    """Probe of one of DeepSpeed's own backends."""

    @property
    def privateuse1(self) -> str:
        """The name under which its runtime claims torch's PrivateUse1 slot; empty if it does not."""
        ...

    @property
    def yields_to(self) -> tuple[str, ...]:
        """Keys that are chosen instead of it if they are present."""
        ...


class DeepSpeed(Protocol):
    """The installed DeepSpeed, or its absence."""

    def keys(self) -> frozenset[str] | None:
        """Return the keys of its backends; None if it is not installed."""
        ...

    def backend(self, key: str, variant: str) -> Backend:
        """Return the probe for an entry of the cascade without an installed vendor package."""
        ...

    def accelerator(self, key: str) -> Any:
        """Return a new instance of DeepSpeed's own accelerator class for a key."""
        ...

    def load(self) -> None:
        """Import deepspeed, which calls `get_accelerator()`."""
        ...

    def importing(self) -> bool:
        """Return whether deepspeed is being imported."""
        ...

    def launching(self) -> bool:
        """Return whether this process is one of DeepSpeed's launcher."""
        ...
