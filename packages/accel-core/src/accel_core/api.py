# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The public functions: the process's one current accelerator, with selection connected to DeepSpeed."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from accel_core.selection.current import CurrentAccelerator, Explanation, explain_current
from accel_core.upstream.backends import StockDeepSpeed

#: The accelerator of this process.
CURRENT = CurrentAccelerator(StockDeepSpeed())

get_accelerator = CURRENT.get
set_accelerator = CURRENT.set
using = CURRENT.using
is_current_accelerator_supported = CURRENT.is_supported

__all__ = ["explain", "get_accelerator", "is_current_accelerator_supported", "set_accelerator", "using"]


def explain() -> Explanation:
    """Explain the choice of the accelerator, selecting it if necessary. Does not raise for a failed selection."""
    return explain_current(CURRENT)


def import_hooks() -> list[tuple[str, Callable[[ModuleType], None]]]:
    """Return what is called after the import of each module that the bridge changes, in this order."""
    from accel_core.upstream import hooks  # with DeepSpeed alone

    return hooks.import_hooks(CURRENT)
