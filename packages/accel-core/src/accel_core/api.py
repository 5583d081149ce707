# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The public functions: the process's one current accelerator, with selection connected to DeepSpeed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType

from accel_core.errors import AccelError
from accel_core.selection.candidates import CandidateSet
from accel_core.selection.current import CurrentAccelerator, Explanation, explained
from accel_core.upstream.backends import StockDeepSpeed

#: The accelerator of this process.
CURRENT = CurrentAccelerator(StockDeepSpeed())

get_accelerator = CURRENT.get
set_accelerator = CURRENT.set
using = CURRENT.using
is_current_accelerator_supported = CURRENT.is_supported

__all__ = [
    "device_index",
    "explain",
    "get_accelerator",
    "is_current_accelerator_supported",
    "set_accelerator",
    "using",
]


def explain() -> Explanation:
    """Explain the choice of the accelerator, selecting it if necessary. Does not raise for a failed selection."""
    error = ""
    try:
        CURRENT.get()
    except AccelError as raised:
        error = str(raised)
    accelerator, selection = CURRENT.state()
    if selection is None:
        name = "" if error else str(accelerator.device_name())
        return Explanation(name, "selection failed" if error else "set by the program", error=error)
    asked = selection.request.asked
    others = [] if asked is None else CandidateSet(CURRENT.deepspeed).all
    return explained(selection, [candidate for candidate in others if candidate.key != asked])


def device_index(index: int | None) -> AbstractContextManager[None]:
    """Make a device the current one of this thread inside a `with` block; the previous one is restored after it.

    None changes nothing, as in `torch.accelerator.device_index`: it is the index of a tensor on the CPU.
    """
    if index is None:
        return nullcontext()
    from accel_core import device  # imports torch

    return device.device_index(get_accelerator(), index)


def import_hooks() -> list[tuple[str, Callable[[ModuleType], None]]]:
    """Return what is called after the import of each module that the bridge changes, in this order."""
    from accel_core.upstream import hooks  # with DeepSpeed alone

    return hooks.import_hooks(CURRENT)
