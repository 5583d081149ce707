# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Settings of Habana's runtime that training with DeepSpeed needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

deterministic: Any = (
    torch.utils.deterministic
)  # a module whose attribute is a property; torch has no type for it

#: The runtime reads them at its first operation, so they may be set after its import.
VARIABLES = {"PT_HPU_LAZY_ACC_PAR_MODE": "0", "PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES": "0"}


@contextmanager
def applied() -> Iterator[None]:
    """Apply the settings; undo them if the block raises.

    Variables that are set already are not changed. Without deterministic algorithms, Habana's graphs of equal
    programs differ between ranks and runs. Filling of uninitialized memory, which they imply, is turned off: it
    breaks the runtime's mapping of memory.
    """
    before = dict(os.environ)
    enabled = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    fills = deterministic.fill_uninitialized_memory
    try:
        for name, value in VARIABLES.items():
            os.environ.setdefault(name, value)
        torch.use_deterministic_algorithms(True)
        deterministic.fill_uninitialized_memory = False
        yield
    except BaseException:
        torch.use_deterministic_algorithms(enabled, warn_only=warns)
        deterministic.fill_uninitialized_memory = fills
        for name in VARIABLES.keys() - before.keys():
            os.environ.pop(name, None)
        raise
