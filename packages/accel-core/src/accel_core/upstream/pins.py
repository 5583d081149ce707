# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed 0.19's own page-locked allocator (DS_PIN_MEMORY_BACKEND) and its accounting."""

from __future__ import annotations

from typing import Any

from accel_core.interface import HostPins
from accel_core.op_builder.source_builder import deepspeed_folder


class UpstreamPins:
    """Uses deepspeed.utils at each call, because the backend may be chosen late."""

    def active(self) -> Any:
        """Return upstream's allocator if the user has chosen it, else None."""
        from deepspeed.utils.pin_memory import get_active_native_pinned_memory

        return get_active_native_pinned_memory()

    def track(self, nbytes: int) -> None:
        """Add the bytes to upstream's accounting of locked memory."""
        from deepspeed.utils.pin_memory_tracker import track_pinned_memory

        track_pinned_memory(nbytes)


def upstream_pins() -> HostPins | None:
    """Return DeepSpeed's allocator of locked memory; None for releases without one (0.18)."""
    folder = deepspeed_folder()
    if folder is None or not all(
        (folder / "utils" / f"{name}.py").is_file() for name in ("pin_memory", "pin_memory_tracker")
    ):
        return None
    return UpstreamPins()
