# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Lists of tensors as one flat tensor, and tensors as bytes, on any device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from accel_core.op_builder import Implementation, OpBuilder


def cast_to_byte_tensor(
    tensors: torch.Tensor | list[torch.Tensor] | tuple[torch.Tensor, ...],
) -> torch.Tensor | list[torch.Tensor]:
    """Return the bytes of a tensor, or of each of a list, as a flat tensor of uint8: its memory where contiguous."""
    if isinstance(tensors, (list, tuple)):
        return [as_bytes(tensor) for tensor in tensors]
    return as_bytes(tensors)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor as a flat tensor of uint8."""
    whole = tensor.detach().resolve_conj().resolve_neg().contiguous()
    # The stride of a single element can be any number, which view() does not take.
    return whole.as_strided((whole.numel(),), (1,)).view(torch.uint8)


class UtilsBuilder(OpBuilder):
    """Builds `utils`: torch's `flatten(tensors)` and `unflatten(flat, tensors)`, and `cast_to_byte_tensor(tensors)`."""

    NAME = "utils"
    BUILD_VAR = "DS_BUILD_UTILS"
    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = (Implementation.PLAIN,)

    def compatibility(self) -> tuple[bool, str]:
        """Return True, and torch's module."""
        return True, "torch._utils"

    def load(self, verbose: bool = True) -> Any:
        """Return upstream's functions."""
        return SimpleNamespace(
            flatten=_flatten_dense_tensors,
            unflatten=_unflatten_dense_tensors,
            cast_to_byte_tensor=cast_to_byte_tensor,
        )
