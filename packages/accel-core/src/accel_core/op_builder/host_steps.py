# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the op of a host optimizer (`CPUAdamBuilder` and the like) may offer beside upstream's functions.

With these, the bridge shortens ZeRO-Offload's path of a gradient through host memory (docs/offload.md). An op without
them works as with stock DeepSpeed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

import torch


class FusedStep(Protocol):
    """An op whose updates also unscale the gradients and write the parameters in another dtype."""

    #: Calls of the update function so far.
    updates: int


class HostStepOp(Protocol):
    """The additional functions. All tensors are in host memory; results do not depend on the number of threads."""

    def copy_gradient(
        self,
        grad: torch.Tensor,
        destination: torch.Tensor | None = None,
        *,
        accumulated: torch.Tensor | None = None,
        add: bool = False,
    ) -> float:
        """Copy a gradient to `destination`, converted; return the sum of its squares in float64.

        accumulated: with `add` the gradient is added to it and the sum is copied; otherwise the gradient replaces it.
        """
        ...

    def sum_of_squares(self, tensor: torch.Tensor) -> float:
        """Return the sum over all elements in float64; infinite or NaN where an element is."""
        ...

    def fused(
        self,
        *,
        grad_factor: float = 1.0,
        copy: torch.Tensor | None = None,
        copied: Callable[[int, int], None] | None = None,
    ) -> FusedStep:
        """Return the op with updates that multiply the gradients first, and write the parameters to `copy` too.

        copied: called with the bounds of each piece of the copy once it is complete.
        """
        ...


def host_step_op(op: Any) -> HostStepOp | None:
    """Return the op if it has the additional functions, else None."""
    if all(callable(getattr(op, name, None)) for name in ("copy_gradient", "sum_of_squares", "fused")):
        return cast(HostStepOp, op)
    return None
