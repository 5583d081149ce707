# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Pinned memory: copies without data, wrong forms, refused calls, another allocator that is passed over."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from accel_good.accelerator import GOOD_Accelerator
from torch.utils.weak import WeakIdKeyDictionary

from broken import answers, breaks, broken

answers(
    {"is_pinned": True},
    "pinned_memory.other_memory_is_not_taken_from_it pinned_memory.ordinary_memory_is_not_pinned",
)
answers(
    {"is_pinned": False},
    "pinned_memory.active_allocator_is_used pinned_memory.ordinary_memory_is_not_pinned",
    "pinned_memory.memory_is_pinned pinned_memory.buffers_have_any_shape",
)
broken(
    "ShapesAreNumbers",
    "pinned_memory.buffers_have_any_shape",
    pin_empty=lambda self, *size, dtype, device="cpu": GOOD_Accelerator.pin_empty(
        self, *(size[0][:1] if isinstance(size[0], list) else size), dtype=dtype, device=device
    ),
)


@breaks("pinned_memory.buffers_have_any_shape")
class BuffersHaveElements(GOOD_Accelerator):
    def torch_empty_pinned(self, tensor: torch.Tensor, shape: Any) -> torch.Tensor:
        if 0 in shape:
            raise RuntimeError("cannot lock 0 bytes")
        return super().torch_empty_pinned(tensor, shape)


broken(
    "PinningCopiesNothing",
    "pinned_memory.memory_has_the_form_asked_for pinned_memory.copy_to_the_device_need_not_block",
    torch_pin_memory=lambda self, tensor: self._remembered(torch.zeros_like(tensor) - 1),
)
broken(
    "PinningLosesTheShape",
    "pinned_memory.memory_has_the_form_asked_for pinned_memory.copy_to_the_device_need_not_block",
    torch_pin_memory=lambda self, tensor: self._remembered(tensor.flatten().clone()),
)
# As it was on mlu.
broken(
    "PinningTakesATensorOnly",
    "pinned_memory.active_allocator_is_used[a byte's alignment]",
    "pinned_memory.active_allocator_is_used[copy] pinned_memory.active_allocator_is_used[no copy, flat]",
    "pinned_memory.active_allocator_is_used[no copy]",
    "pinned_memory.inactive_allocator_is_left_alone[a byte's alignment]",
    "pinned_memory.inactive_allocator_is_left_alone[copy]",
    "pinned_memory.inactive_allocator_is_left_alone[no copy, flat]",
    "pinned_memory.inactive_allocator_is_left_alone[no copy]",
    "pinned_memory.other_memory_is_not_taken_from_it identity.has_every_method",
    "pinned_memory.memory_has_the_form_asked_for[align_bytes by position]",
    "pinned_memory.memory_has_the_form_asked_for[align_bytes]",
    "pinned_memory.memory_has_the_form_asked_for[make_copy]",
    "pinned_memory.memory_is_pinned[align_bytes by position] pinned_memory.memory_is_pinned[align_bytes]",
    "pinned_memory.memory_is_pinned[make_copy] pinned_memory.buffers_have_any_shape",
    pin_memory=lambda self, tensor: self.torch_pin_memory(tensor),
)
broken(
    "BuffersAreNeverFlat",
    "pinned_memory.active_allocator_is_used[no copy, flat] pinned_memory.memory_has_the_form_asked_for",
    pin_memory=lambda self, tensor, make_copy=True, match_shape=True, *, align_bytes=1: (
        GOOD_Accelerator.pin_memory(self, tensor, make_copy, True, align_bytes=align_bytes)
    ),
)
broken(
    "EmptyBuffersAreFloat32",
    "pinned_memory.active_allocator_is_used[a shape] pinned_memory.active_allocator_is_used[lengths]",
    "pinned_memory.active_allocator_is_used[one length] pinned_memory.memory_has_the_form_asked_for",
    "pinned_memory.buffers_have_any_shape",
    pin_empty=lambda self, *size, dtype, device="cpu": GOOD_Accelerator.pin_empty(
        self, *size, dtype=torch.float32, device=device
    ),
)
broken(
    "BufferIsTheTensorItself",
    "pinned_memory.memory_has_the_form_asked_for pinned_memory.device_other_than_the_host_is_refused",
    "pinned_memory.active_allocator_is_used[like]",
    pin_empty_like=lambda self, tensor, device="cpu", dtype=None: (
        self._remembered(tensor)
        if dtype in (None, tensor.dtype)
        else GOOD_Accelerator.pin_empty_like(self, tensor, device, dtype)
    ),
)
broken("LocksAreDenied", "pinned_memory.ordinary_memory_is_not_pinned", torch_pins_host_memory=False)
broken(
    "BuffersAnywhere",
    "pinned_memory.device_other_than_the_host_is_refused",
    pin_empty=lambda self, *size, dtype, device="cpu": GOOD_Accelerator.pin_empty(self, *size, dtype=dtype),
)


@breaks(
    "pinned_memory.inactive_allocator_is_left_alone pinned_memory.active_allocator_is_used",
    "pinned_memory.nothing_deprecated_is_called",
)
class UnpinningFails(GOOD_Accelerator):
    def unpin_memory(self, tensor: torch.Tensor) -> Any:
        raise NotImplementedError


@breaks("pinned_memory.nothing_deprecated_is_called")
class PinningWarns(GOOD_Accelerator):
    """As it was on xpu."""

    def torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        warnings.warn("the argument 'device' is deprecated", DeprecationWarning, stacklevel=2)
        return super().torch_is_pinned(tensor)


broken(
    "BuffersLikeAnotherAreOfAnyDevice",
    "pinned_memory.device_other_than_the_host_is_refused",
    pin_empty_like=lambda self, tensor, device="cpu", dtype=None: GOOD_Accelerator.pin_empty_like(
        self, tensor, dtype=dtype
    ),
)


@breaks("pinned_memory.ordinary_memory_is_not_pinned pinned_memory.other_memory_is_not_taken_from_it")
class OnlyPinnedMemoryIsAskedFor(GOOD_Accelerator):
    def torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        if not super().torch_is_pinned(tensor):
            raise RuntimeError("no memory of this driver")
        return True


for _number in (0, 3, 4096.0, None):
    breaks("pinned_memory.alignment_is_a_number_of_bytes", name=f"pin_memory_alignment_is_{_number}")(
        type(
            f"AlignmentIs{_number}",
            (GOOD_Accelerator,),
            {"pin_memory_alignment": lambda self, number=_number: number},
        )
    )


# --- pinned copies of tensors that are not contiguous float32, and memory that is pinned too little or too much

_ANY = "pinned_memory.any_tensor_is_copied"


broken(
    "CopyIsTheSource",
    "pinned_memory.memory_has_the_form_asked_for pinned_memory.ordinary_memory_is_not_pinned",
    torch_pin_memory=lambda self, tensor: self._remembered(tensor),
)


@breaks("pinned_memory.memory_has_the_form_asked_for")
class AlignedCopiesShareABuffer(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self._buffers: dict[Any, torch.Tensor] = {}

    def pin_aligned(self, tensor: torch.Tensor) -> torch.Tensor:
        key = tensor.shape, tensor.dtype
        if key not in self._buffers:
            self._buffers[key] = super().pin_aligned(tensor)
        return self._buffers[key].copy_(tensor)


broken(
    "EveryCopyIsFloat32",
    *(f"{_ANY}[{kind}]" for kind in ("bfloat16", "bool", "float16", "float64", "int64", "no rows", "uint8")),
    torch_pin_memory=lambda self, tensor: GOOD_Accelerator.torch_pin_memory(self, tensor.float()),
)


@breaks(*(f"{_ANY}[{kind}]" for kind in ("a column", "every other", "transposed")))
class StridesAreIgnored(GOOD_Accelerator):
    def torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        plain = torch.empty(tensor.shape).stride()
        return super().torch_pin_memory(tensor.as_strided(tensor.shape, plain))


@breaks(f"{_ANY}[empty] {_ANY}[no rows]")
class EmptyTensorsAreRefused(GOOD_Accelerator):
    def torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.numel():
            raise RuntimeError("there is nothing to pin")
        return super().torch_pin_memory(tensor)


@breaks("pinned_memory.memory_is_pinned")
class OnlyTheFirstAddressIsPinned(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self._first: set[int] = set()

    def _remembered(self, tensor: torch.Tensor) -> torch.Tensor:
        self._first.add(tensor.data_ptr())
        return super()._remembered(tensor)

    def torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        return tensor.data_ptr() in self._first and super().torch_is_pinned(tensor)


broken(
    "PagesAreNotWhole",
    "pinned_memory.whole_pages_begin_at_a_page",
    pin_aligned=lambda self, tensor: self.torch_pin_memory(tensor),
)


@breaks("pinned_memory.freed_memory_is_not_pinned")
class AddressesAreKept(GOOD_Accelerator):
    """As it was on xpu."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: set[int] = set()

    def _remembered(self, tensor: torch.Tensor) -> torch.Tensor:
        self._kept.add(tensor.data_ptr())
        return super()._remembered(tensor)

    def torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        return tensor.data_ptr() in self._kept or super().torch_is_pinned(tensor)


@breaks("pinned_memory.ordinary_memory_is_not_pinned")
class TheSourceIsPinnedToo(GOOD_Accelerator):
    def torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        self._remembered(tensor)
        return super().torch_pin_memory(tensor)


@breaks("pinned_memory.answer_follows_the_data_of_a_tensor")
class PinnedOnceIsPinnedForGood(GOOD_Accelerator):
    """It answers once for each tensor object."""

    def __init__(self) -> None:
        super().__init__()
        self._answers = WeakIdKeyDictionary()

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        if tensor not in self._answers:
            self._answers[tensor] = super().is_pinned(tensor)
        return bool(self._answers[tensor])


# --- another allocator of pinned memory: passed over, asked for something else, counted wrongly

broken("OtherAllocatorIsPassedOver", "pinned_memory.active_allocator_is_used", _native_pins=lambda self: None)
broken(
    "LockedBytesAreNotCounted",
    "pinned_memory.inactive_allocator_is_left_alone pinned_memory.active_allocator_is_used",
    _track=lambda self, nbytes: None,
)


@breaks("pinned_memory.active_allocator_is_used")
class MemoryIsKept(GOOD_Accelerator):
    def unpin_memory(self, tensor: torch.Tensor) -> Any:
        return None


@breaks("pinned_memory.active_allocator_is_used[no copy, flat]")
class OtherAllocatorIsNeverAskedForFlat(GOOD_Accelerator):
    def pin_memory(
        self,
        tensor: torch.Tensor,
        make_copy: bool | int = True,
        match_shape: bool = True,
        *,
        align_bytes: int = 1,
    ) -> torch.Tensor:
        match_shape = match_shape or self._native_pins() is not None
        return super().pin_memory(tensor, make_copy, match_shape, align_bytes=align_bytes)


@breaks("pinned_memory.other_memory_is_not_taken_from_it")
class WholePagesAreTakenFromTheOtherAllocator(GOOD_Accelerator):
    def pin_aligned(self, tensor: torch.Tensor) -> torch.Tensor:
        pins = self._native_pins()
        return super().pin_aligned(tensor) if pins is None else pins.pin(tensor, True, True)


broken(
    "RegisteredMemoryIsKept",
    "pinned_memory.registered_memory_can_be_given_back",
    unregister_host_memory=lambda self, address: None,
)
broken(
    "RefusalOfTheRuntimeIsHidden",
    "pinned_memory.registered_memory_can_be_given_back",
    unregister_host_memory=lambda self, address: self._registered.discard(address),
)


@breaks("pinned_memory.registered_memory_can_be_given_back")
class RegistrationIsNotTold(GOOD_Accelerator):
    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        super().register_host_memory(address, num_bytes)
        return None  # type: ignore[return-value]
