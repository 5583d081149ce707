# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What Habana's runtime needs to be set for DeepSpeed to train on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

deterministic: Any = torch.utils.deterministic  # a module that is an object with a setting

#: Read by the runtime when it first computes, so that they may follow its import.
VARIABLES = {"PT_HPU_LAZY_ACC_PAR_MODE": "0", "PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES": "0"}


@contextmanager
def applied() -> Iterator[None]:
    """Settings that stay when the block ends well, and are taken back when it raises.

    A variable that is set already stays as it is. Deterministic algorithms: without them Habana's graphs of
    equal programs differ between ranks and runs. Filling fresh memory, which comes with them, is left off:
    it breaks the runtime's mapping of memory.
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
