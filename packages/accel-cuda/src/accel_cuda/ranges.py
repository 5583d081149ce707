# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ranges for NVIDIA's profilers, with domains if the optional package nvtx is installed, else with torch."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch

_TORCH: Any = torch.cuda.nvtx


def push(msg: str, domain: str | None, category: str | None) -> None:
    """Open a range; without nvtx, domain and category are ignored."""
    found = _domain(domain)
    if found is not None:
        found.push_range(found.get_event_attributes(message=msg, category=category))
    elif _torch_has_ranges():
        _TORCH.range_push(msg)


def pop(domain: str | None) -> None:
    """Close the innermost range of a domain."""
    found = _domain(domain)
    if found is not None:
        found.pop_range()
    elif _torch_has_ranges():
        _TORCH.range_pop()


@functools.cache
def _domain(name: str | None) -> Any:
    if name is None:
        return None
    try:
        return importlib.import_module("nvtx").get_domain(name)
    except ImportError:
        return None


@functools.cache
def _torch_has_ranges() -> bool:
    """Return whether torch is built for a GPU; otherwise its functions exist but raise."""
    return bool(torch.version.cuda or torch.version.hip)
