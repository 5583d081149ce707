# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Pinned copies of tensors that are not contiguous float32, and memory that is pinned too little or too much."""

from __future__ import annotations

from typing import Any

import torch
from accel_good.accelerator import GOOD_Accelerator
from torch.utils.weak import WeakIdKeyDictionary

from broken import breaks, broken

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
