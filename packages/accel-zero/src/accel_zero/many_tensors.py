# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""One operation over many small tensors, with the bits that one operation per tensor gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import torch

#: Tensors with more elements are processed separately: their own work outweighs that of a call.
SMALL = 2**16
#: Elements that are copied into one temporary at most.
CHUNK = 2**22
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def on_cpu(tensors: Sequence[torch.Tensor]) -> bool:
    """True if torch computes a list of norms one tensor at a time, as it does on the CPU."""
    return all(each.is_cpu and each.dtype in _FLOATS and each.layout is torch.strided for each in tensors)


def norms(tensors: Sequence[torch.Tensor], dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Return the 2-norm of each tensor on the CPU, computed in `dtype`: the bits of `each.to(dtype).norm(2)`."""
    return tuple(torch._foreach_norm(list(tensors), 2.0, dtype)) if tensors else ()


def flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the elements of all tensors in a new vector."""
    return torch._C._nn.flatten_dense_tensors(list(tensors))


def views(vector: torch.Tensor, like: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Return parts of the vector with the shapes of the given tensors."""
    return cast("Sequence[torch.Tensor]", torch._C._nn.unflatten_dense_tensors(vector, list(like)))


def any_invalid(tensors: Iterable[torch.Tensor]) -> torch.Tensor | None:
    """Return a scalar that is True if any element is infinite or NaN; None without elements or for sparse tensors."""
    flags: list[torch.Tensor] = []
    for chunk in chunks(tensors):
        if chunk[0].layout is not torch.strided:
            return None
        joined = chunk[0] if len(chunk) == 1 else flat(chunk)
        flags += [torch.isfinite(joined.amax()), torch.isfinite(joined.amin())]
    return torch.stack(flags).all().logical_not() if flags else None


def chunks(tensors: Iterable[torch.Tensor], most: int | None = None) -> Iterator[list[torch.Tensor]]:
    """Yield lists of small tensors of one type and device with `most` elements, and large ones by themselves."""
    most = CHUNK if most is None else most
    chunk: list[torch.Tensor] = []
    size, kind = 0, cast(Any, None)
    for each in tensors:
        count = each.numel()
        if count > SMALL or each.layout is not torch.strided:
            yield [each]
        elif count:
            if chunk and ((each.dtype, each.device) != kind or size + count > most):
                yield chunk
                chunk, size = [], 0
            if not chunk:
                kind = each.dtype, each.device
            chunk.append(each)
            size += count
    if chunk:
        yield chunk
