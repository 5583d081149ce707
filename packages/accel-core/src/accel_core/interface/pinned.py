# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Page-locked host memory, from which copies to the device can run asynchronously.

The signatures accept both DeepSpeed 0.18, which passes `align_bytes`, and 0.19, which passes `make_copy` and
`match_shape`. The three `torch_*` methods lock memory for this device, and vendors override them; the other
methods call these.
"""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    import torch

_HOST = "cpu"  # torch's name for host memory, not the vendor of that name


class HostPins(Protocol):
    """An alternative allocator of page-locked memory that takes precedence; DeepSpeed 0.19 has one."""

    def active(self) -> Any:
        """Return an object with pin, pin_empty, is_pinned and unpin, or None to use torch's allocator."""
        ...

    def track(self, nbytes: int) -> None:
        """Add locked bytes to the accounting."""
        ...


class PinnedMemoryInterface(ABC):
    """Page-locked memory from torch, unless `host_pins` has another allocator."""

    #: Set by the bridge; active if DS_PIN_MEMORY_BACKEND chooses DeepSpeed's native allocator.
    host_pins: ClassVar[HostPins | None] = None
    #: Whether torch's `pin_memory` locks pages on this device.
    torch_pins_host_memory: bool = True

    def torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a CPU tensor in memory that torch has page-locked for this device."""
        return tensor.pin_memory()

    def torch_empty_pinned(self, tensor: torch.Tensor, shape: Any) -> torch.Tensor:
        """Return an uninitialized page-locked CPU tensor of this shape, of the dtype of `tensor`."""
        return tensor.new_empty(shape, pin_memory=True)

    def torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        """Return whether torch has page-locked the tensor's memory for this device."""
        return tensor.is_pinned()

    def pin_memory(
        self,
        tensor: torch.Tensor,
        make_copy: bool | int = True,
        match_shape: bool = True,
        *,
        align_bytes: int = 1,
    ) -> torch.Tensor:
        """Return a page-locked tensor like this CPU tensor.

        make_copy:   copy the data too; else only shape and dtype are taken.
        match_shape: keep the shape; else a flat buffer of as many elements (only without make_copy).
        align_bytes: 1 for torch's alignment, 0 for whole pages (DeepSpeed 0.18). In that release it is
                     the second positional argument, so an int there that is not a bool means align_bytes.
        """
        if type(make_copy) is int:
            make_copy, align_bytes = True, make_copy
        if align_bytes == 0:
            return self.pin_aligned(tensor)
        pins = self._native_pins()
        if pins is not None:
            self._track(tensor.nbytes)
            pinned: torch.Tensor = pins.pin(tensor, make_copy=make_copy, match_shape=match_shape)
            return pinned
        if make_copy:
            if self.torch_pins_host_memory:
                self._track(tensor.nbytes)
            return self.torch_pin_memory(tensor)
        return self._pin_fresh(tensor, tuple(tensor.shape) if match_shape else (tensor.numel(),))

    def pin_aligned(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a page-locked, page-aligned copy of a CPU tensor (`align_bytes=0`)."""
        # torch's pinned allocators return whole pages; override this method if the device's does not.
        return self.torch_pin_memory(tensor)

    def pin_empty(self, *size: Any, dtype: torch.dtype, device: Any = _HOST) -> torch.Tensor:
        """Return a new, uninitialized page-locked CPU tensor; raises ValueError for another device."""
        import torch

        _refuse_other_device(device)
        shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
        return self._pin_fresh(torch.empty(0, dtype=dtype), shape)

    def pin_empty_like(
        self, tensor: torch.Tensor, device: Any = _HOST, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Return a new, uninitialized page-locked CPU tensor of this shape; raises ValueError for another device."""
        _refuse_other_device(device)
        template = tensor.new_empty((0,), dtype=dtype or tensor.dtype, device=device)
        return self._pin_fresh(template, tuple(tensor.shape))

    def _pin_fresh(self, template: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        pins = self._native_pins()
        if pins is not None or self.torch_pins_host_memory:
            numel = 1
            for length in shape:
                numel *= int(length)
            self._track(numel * template.element_size())
        fresh: torch.Tensor = (
            self.torch_empty_pinned(template, shape) if pins is None else pins.pin_empty(template, shape)
        )
        return fresh

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Return whether the tensor's memory is page-locked."""
        pins = self._native_pins()
        return bool(pins is not None and pins.is_pinned(tensor)) or self.torch_is_pinned(tensor)

    def unpin_memory(self, tensor: torch.Tensor) -> Any:
        """Free memory of the alternative allocator at once; torch frees its own with the last reference."""
        pins = self._native_pins()
        return None if pins is None else pins.unpin(tensor)

    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        """Register page-locked host memory with the device runtime; returns False if that is not needed."""
        return False

    def unregister_host_memory(self, address: int) -> None:
        """Undo `register_host_memory`."""

    def pin_memory_alignment(self) -> int:
        """Return the alignment in bytes that `register_host_memory` needs; 1 means none."""
        return 1

    def _native_pins(self) -> Any:
        return None if self.host_pins is None else self.host_pins.active()

    def _track(self, nbytes: int) -> None:
        if self.host_pins is not None:
            self.host_pins.track(nbytes)


def _refuse_other_device(device: Any) -> None:
    import torch

    try:
        device_type = torch.device(device).type
    except RuntimeError as error:
        raise ValueError(f"pinned memory is host memory: device must be cpu, got {device!r}") from error
    if device_type != _HOST:
        raise ValueError(f"pinned memory is host memory: device must be cpu, got {device!r}")
