# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""An emulated HIP runtime for this process, with hipRTC in it, as up to ROCm 5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accel_sim.driver import emulated

#: By this name the loader finds a library that the process has, before it looks for files.
SONAME = "libamdhip64.so.6"


def load(headers: Path | None = None, flags: tuple[str, ...] = ()) -> Any:
    """Load the runtime, as `emulated.load`."""
    return emulated.load(SONAME, headers, flags)
