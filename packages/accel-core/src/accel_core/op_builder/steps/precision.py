# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Conversion of half-precision tensors: steps compute in float32 and round once, at their end."""

from __future__ import annotations

from collections.abc import Sequence

import torch

Tensors = list[torch.Tensor]


def wide(tensors: Sequence[torch.Tensor]) -> Tensors:
    """Return detached tensors of at least 32 bits as they are, and float32 copies of others."""
    detached = (tensor.detach() for tensor in tensors)
    return [tensor if tensor.dtype.itemsize >= 4 else tensor.float() for tensor in detached]


def copy_back(narrow: Sequence[torch.Tensor], computed: Sequence[torch.Tensor]) -> None:
    """Copy the float32 copies that `wide` made back into the original tensors, rounded."""
    pairs = [(n, w) for n, w in zip(narrow, computed, strict=True) if n.dtype != w.dtype]
    if pairs:
        torch._foreach_copy_([n.detach() for n, _ in pairs], [w for _, w in pairs])
