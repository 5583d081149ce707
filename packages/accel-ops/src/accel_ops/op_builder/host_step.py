# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What host optimizer ops offer beside upstream's functions: a step with unscaling, clipping and copy-out fused.

With these, `accel_ops.offload` shortens ZeRO-Offload's path of a gradient through host memory (docs/offload.md). An op
without them works as with stock DeepSpeed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

import torch

from accel_ops import kernels
from accel_ops.gradients import copy_gradient

#: Elements that are updated before their copy is reported: 32 MiB of bfloat16, enough to hide the start of a transfer.
PIECE = 1 << 24


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


class FusedOp:
    """An op whose updates multiply the gradients first, and also write the parameters in another dtype.

    op:     the loaded op; other functions are its own.
    update: its update function, with `grad_factor` and `copies` as keywords, and the number of its leading arguments
        that are no tensors.
    copied: called with the bounds of each piece of the copy when it is complete; the caller may start to transfer it.

    `updates` counts the calls.
    """

    def __init__(
        self,
        op: Any,
        update: Callable[..., int],
        scalars: int,
        *,
        grad_factor: float,
        copy: torch.Tensor | None,
        copied: Callable[[int, int], None] | None,
    ) -> None:
        self._op, self._update, self._scalars = op, update, scalars
        self._grad_factor, self._copy, self._copied = grad_factor, copy, copied
        self.updates = 0

    def __getattr__(self, name: str) -> Any:
        return self._fused if name == self._update.__name__ else getattr(self._op, name)

    def _fused(self, *arguments: Any) -> int:
        self.updates += 1
        scalars, tensors = arguments[: self._scalars], arguments[self._scalars :]
        size = tensors[0].numel()
        piece = PIECE if self._copied else max(size, 1)
        for begin in range(0, size, piece):
            end = min(begin + piece, size)
            whole = end - begin == size
            parts = tensors if whole else [tensor.view(-1)[begin:end] for tensor in tensors]
            copy = self._copy if whole or self._copy is None else self._copy.view(-1)[begin:end]
            self._update(*scalars, *parts, grad_factor=self._grad_factor, copy=copy)
            if self._copied:
                self._copied(begin, end)
        return 0


class HostStep:
    """Mixin of the host optimizer ops.

    UPDATE: name of the op's update function. SCALARS: the number of its arguments ahead of the tensors.
    """

    UPDATE: str
    SCALARS: int

    copy_gradient = staticmethod(copy_gradient)

    @staticmethod
    def sum_of_squares(tensor: torch.Tensor) -> float:
        """Return the sum over all elements, in float64; infinite or NaN where an element is."""
        return kernels.sum_of_squares([tensor])

    def fused(
        self,
        *,
        grad_factor: float = 1.0,
        copy: torch.Tensor | None = None,
        copied: Callable[[int, int], None] | None = None,
    ) -> FusedOp:
        """Return an op whose updates multiply the gradients by a factor first and write the result to `copy` too.

        The gradients themselves are not changed. See `FusedOp`.
        """
        return FusedOp(
            self, getattr(self, self.UPDATE), self.SCALARS, grad_factor=grad_factor, copy=copy, copied=copied
        )
