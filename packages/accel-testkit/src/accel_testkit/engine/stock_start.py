# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Job of one rank: start DeepSpeed's own CPU, which compiles its op for collectives at the first start."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def work(accelerator: Any, answer: dict[str, Any], folder: Path) -> None:
    """Initialize DeepSpeed as its engine does."""
    import deepspeed

    deepspeed.init_distributed(deepspeed.accelerator.get_accelerator().communication_backend_name())
