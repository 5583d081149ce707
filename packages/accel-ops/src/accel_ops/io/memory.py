# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The memory of a tensor, as a transfer reads or writes it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from accel_ops.errors import InvalidTensors


@dataclass(frozen=True)
class HostMemory:
    """Contiguous host memory. `holder` keeps it; what was read into it is copied to `destination`, if there is one."""

    holder: torch.Tensor
    destination: torch.Tensor | None = None

    @property
    def address(self) -> int:
        """The address of its first byte."""
        return self.holder.data_ptr()

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.holder.nbytes

    def deliver(self) -> None:
        """Copy what was read to where it belongs."""
        if self.destination is not None:
            with torch.no_grad():
                self.destination.copy_(self.holder)


def check(tensor: torch.Tensor, *, write: bool) -> None:
    """Raise InvalidTensors for a tensor that has no memory to read from or write to."""
    if not isinstance(tensor, torch.Tensor):
        raise _invalid(f"{type(tensor).__name__}", "a tensor")
    if tensor.is_meta or tensor.layout is not torch.strided or tensor.is_quantized:
        raise _invalid(_shown(tensor), "a strided tensor with memory")
    last = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size
    )
    needed = (tensor.storage_offset() + last + 1) * tensor.element_size() if tensor.numel() else 0
    if needed > tensor.untyped_storage().nbytes():
        raise _invalid(f"{_shown(tensor)}, whose memory was freed", "a tensor with its memory")
    if tensor.device.type == "cpu" and tensor.numel() and not tensor.data_ptr():
        raise _invalid(
            f"{_shown(tensor)}, a {type(tensor).__name__} without memory of its own", "a plain tensor"
        )
    overlapping = any(
        size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    if not write and overlapping and tensor.numel():
        raise _invalid(
            f"{_shown(tensor)}, several elements of which are at one address", "one address for each element"
        )


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether the bytes of a host tensor are those of its elements, in order."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def host_memory(tensor: torch.Tensor, *, write: bool) -> HostMemory:
    """Return the memory of a host tensor; a copy where it is not contiguous."""
    tensor = tensor.detach()
    if is_plain(tensor):
        return HostMemory(tensor)
    if write:
        return HostMemory(tensor.resolve_conj().resolve_neg().contiguous())
    return HostMemory(torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device), destination=tensor)


def _shown(tensor: torch.Tensor) -> str:
    return f"a {tensor.device.type} tensor of shape {tuple(tensor.shape)}, {tensor.layout}"


def _invalid(found: str, expected: str) -> InvalidTensors:
    return InvalidTensors(
        what="a file cannot be read into, or written from, this object",
        found=found,
        expected=expected,
        do="pass a tensor that is allocated, dense, and on the host or a device",
    )
