# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Replacements of names that modules of DeepSpeed have bound, for devices that these modules do not expect."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any


class Changed:
    """An object with other attributes."""

    def __init__(self, former: Any, **attributes: Any) -> None:
        vars(self).update(attributes, _former=former)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._former, name)


def named(stock: Callable[[], Any]) -> Callable[[], Any]:
    """Return `get_accelerator` of modules that allocate with `device=get_accelerator().current_device()`.

    That is a number, which torch reads as a device of the one accelerator that it was built for; the CPU has none.
    """
    import torch

    return lambda: Changed(stock(), current_device=lambda: torch.device(stock().current_device_name()))


def of_accelerator(stock: Any) -> Any:
    """Return torch for modules that pass "cuda" where they mean the accelerator, or no type, which then is CUDA's."""
    created = {
        name: functools.partial(_made, getattr(stock, name)) for name in ("randint", "tensor", "zeros")
    }
    return Changed(stock, is_autocast_enabled=lambda: stock.is_autocast_enabled(_device_name()), **created)


def _made(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if isinstance(device := kwargs.get("device"), str):
        kwargs["device"] = re.sub(r"^cuda\b", _device_name(), device)
    return function(*args, **kwargs)


def _device_name() -> str:
    from deepspeed.accelerator import get_accelerator

    name: str = get_accelerator().device_name()
    return name


def compiler(stock: Callable[[], Any]) -> Any:
    """Return a decorator that compiles by the accelerator's backend, as the engine does: the stock one names none."""
    import torch
    from deepspeed.accelerator import get_accelerator

    return functools.partial(torch.compile, backend=get_accelerator().get_compile_backend())
