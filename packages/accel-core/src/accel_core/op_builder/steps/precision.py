# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Half-precision tensors are computed in float32 and rounded once, at the end of a step."""

from __future__ import annotations

from collections.abc import Sequence

import torch

Tensors = list[torch.Tensor]


def wide(tensors: Sequence[torch.Tensor]) -> Tensors:
    """The tensors themselves, detached, where they have 32 bits or more; else float32 copies."""
    return [tensor.detach() if tensor.dtype.itemsize >= 4 else tensor.detach().float() for tensor in tensors]


def copy_back(narrow: Sequence[torch.Tensor], computed: Sequence[torch.Tensor]) -> None:
    """Round what `wide` had to copy back into the tensors it came from."""
    pairs = [(n, w) for n, w in zip(narrow, computed, strict=True) if n.dtype != w.dtype]
    if pairs:
        torch._foreach_copy_([n.detach() for n, _ in pairs], [w for _, w in pairs])
