# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fallbacks for functions that a release of torch_sdaa may lack.

torch_sdaa is closed source. Seven of the functions that an accelerator needs are used in little public code besides
DeepSpeed's. If the installed release has them, they are called unchanged. Core has fallbacks for two of the others; no
public function returns the generator of a device or its seed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch


def fallbacks(module: Any) -> dict[str, Callable[..., Any]]:
    """Return functions for names that the module may lack."""
    functions: dict[str, Callable[..., Any]] = {
        "get_rng_state": _get_rng_state,
        "memory_reserved": _memory_reserved,
        "set_rng_state": _set_rng_state,
    }
    return {name: partial(function, module) for name, function in functions.items()}


def _index(device: Any) -> int:
    index = device if isinstance(device, int) else torch.device(device).index
    return int(torch.empty(0, device="sdaa").device.index if index is None else index)


def _get_rng_state(module: Any, device: Any = "sdaa") -> Any:
    return module.get_rng_state_all()[_index(device)]


def _set_rng_state(module: Any, new_state: torch.Tensor, device: Any = "sdaa") -> None:
    states = list(module.get_rng_state_all())
    states[_index(device)] = new_state
    module.set_rng_state_all(states)


def _memory_reserved(module: Any, device: Any = None) -> int:
    return int(module.memory_stats(device)["reserved_bytes.all.current"])
