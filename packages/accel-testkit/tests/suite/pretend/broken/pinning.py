# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Pinned memory: copies without data, wrong forms, refused calls, another allocator that is passed over."""

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
    "BuffersAnywhere",
    "pinned_memory.device_other_than_the_host_is_refused",
    pin_empty=lambda self, *size, dtype, device="cpu": GOOD_Accelerator.pin_empty(self, *size, dtype=dtype),
)


@breaks("pinned_memory.nothing_deprecated_is_called")
class PinningWarns(GOOD_Accelerator):
    """As it was on xpu."""

    def torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        warnings.warn("the argument 'device' is deprecated", DeprecationWarning, stacklevel=2)
        return super().torch_is_pinned(tensor)


answers({"pin_memory_alignment": 3}, "pinned_memory.alignment_is_a_number_of_bytes")


# --- pinned copies of tensors that are not contiguous float32, and memory that is pinned too little or too much

_ANY = "pinned_memory.any_tensor_is_copied"


@breaks(*(f"{_ANY}[{kind}]" for kind in ("a column", "every other", "transposed")))
class StridesAreIgnored(GOOD_Accelerator):
    def torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        plain = torch.empty(tensor.shape).stride()
        return super().torch_pin_memory(tensor.as_strided(tensor.shape, plain))


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

broken(
    "LockedBytesAreNotCounted",
    "pinned_memory.inactive_allocator_is_left_alone pinned_memory.active_allocator_is_used",
    _track=lambda self, nbytes: None,
)


broken(
    "RefusalOfTheRuntimeIsHidden",
    "pinned_memory.registered_memory_can_be_given_back",
    unregister_host_memory=lambda self, address: self._registered.discard(address),
)
