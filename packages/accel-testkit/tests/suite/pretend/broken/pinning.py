# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Pinned memory: copies without data, wrong forms, refused calls."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from accel_good.accelerator import GOOD_Accelerator

from broken import answers, breaks

answers(
    {"is_pinned": True},
    "host_pins.other_memory_stays_unpinned",
    "pinned_memory.device_memory_is_not_pinned",
    "pinned_memory.ordinary_memory_is_not_pinned",
)
answers(
    {"is_pinned": False},
    "host_pins.active_allocator_is_used",
    "pinned_memory.locks_of_torch_are_told",
    "pinned_memory.copy_is_pinned",
    "pinned_memory.buffer_without_a_copy",
    "pinned_memory.buffers_have_any_shape",
    "pinned_memory.empty_buffers",
)


@breaks("pinned_memory.buffers_have_any_shape")
class ShapesAreNumbers(GOOD_Accelerator):
    def pin_empty(self, *size: Any, dtype: torch.dtype, device: Any = "cpu") -> torch.Tensor:
        return super().pin_empty(
            *(size[0][:1] if isinstance(size[0], list) else size), dtype=dtype, device=device
        )


@breaks("pinned_memory.buffers_have_any_shape")
class BuffersHaveElements(GOOD_Accelerator):
    def torch_empty_pinned(self, tensor: torch.Tensor, shape: Any) -> torch.Tensor:
        if 0 in shape:
            raise RuntimeError("cannot lock 0 bytes")
        return super().torch_empty_pinned(tensor, shape)


@breaks(
    "pinned_memory.copy_has_the_data",
    "pinned_memory.copy_to_the_device_need_not_block",
    "asynchrony.device_waits_for_a_stream",
    "asynchrony.event_makes_the_named_stream_wait",
    "asynchrony.event_recorded_again_marks_the_later_work[device]",
    "work_order.replay_is_in_the_current_stream",
    "work_order.resolved_dependency_needs_no_wait",
)
class PinningCopiesNothing(GOOD_Accelerator):
    def torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._remembered(torch.zeros_like(tensor) - 1)


@breaks("pinned_memory.copy_has_the_data", "pinned_memory.copy_to_the_device_need_not_block")
class PinningLosesTheShape(GOOD_Accelerator):
    def torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._remembered(tensor.flatten().clone())


@breaks(
    "host_pins.active_allocator_is_used[copy, a byte's alignment]",
    "host_pins.active_allocator_is_used[copy]",
    "host_pins.active_allocator_is_used[no copy, flat]",
    "host_pins.active_allocator_is_used[no copy]",
    "host_pins.inactive_allocator_is_left_alone[copy, a byte's alignment]",
    "host_pins.inactive_allocator_is_left_alone[copy]",
    "host_pins.inactive_allocator_is_left_alone[no copy, flat]",
    "host_pins.inactive_allocator_is_left_alone[no copy]",
    "host_pins.locked_bytes_are_counted[copy, a byte's alignment]",
    "host_pins.locked_bytes_are_counted[copy]",
    "host_pins.locked_bytes_are_counted[no copy, flat]",
    "host_pins.locked_bytes_are_counted[no copy]",
    "host_pins.memory_goes_back_to_its_allocator",
    "host_pins.whole_pages_are_not_taken_from_it",
    "identity.call_shapes_are_the_interface_s",
    "pinned_memory.buffer_without_a_copy",
    "pinned_memory.buffers_are_new_host_memory",
    "pinned_memory.copy_has_the_data[align_bytes by position]",
    "pinned_memory.copy_has_the_data[align_bytes]",
    "pinned_memory.copy_has_the_data[make_copy]",
    "pinned_memory.copy_is_pinned[align_bytes by position]",
    "pinned_memory.copy_is_pinned[align_bytes]",
    "pinned_memory.copy_is_pinned[make_copy]",
    "pinned_memory.buffers_have_any_shape",
)
class PinningTakesATensorOnly(GOOD_Accelerator):
    """As it was on mlu."""

    def pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return self.torch_pin_memory(tensor)


@breaks(
    "host_pins.active_allocator_is_used[no copy, flat]",
    "pinned_memory.buffer_without_a_copy[flat]",
    "pinned_memory.buffers_are_new_host_memory",
)
class BuffersAreNeverFlat(GOOD_Accelerator):
    def pin_memory(
        self,
        tensor: torch.Tensor,
        make_copy: bool | int = True,
        match_shape: bool = True,
        *,
        align_bytes: int = 1,
    ) -> torch.Tensor:
        return super().pin_memory(tensor, make_copy, True, align_bytes=align_bytes)


@breaks(
    "host_pins.active_allocator_is_used[empty, a shape]",
    "host_pins.active_allocator_is_used[empty, lengths]",
    "host_pins.active_allocator_is_used[empty, one length]",
    "pinned_memory.buffers_are_new_host_memory",
    "pinned_memory.empty_buffers",
    "pinned_memory.buffers_have_any_shape",
)
class EmptyBuffersAreFloat32(GOOD_Accelerator):
    def pin_empty(self, *size: Any, dtype: torch.dtype, device: Any = "cpu") -> torch.Tensor:
        return super().pin_empty(*size, dtype=torch.float32, device=device)


@breaks(
    "pinned_memory.buffers_are_new_host_memory",
    "pinned_memory.pinned_memory_like_another_is_host_memory[meta]",
    "host_pins.active_allocator_is_used[empty like]",
    "host_pins.inactive_allocator_is_left_alone[empty like]",
    "host_pins.locked_bytes_are_counted[empty like]",
)
class BufferIsTheTensorItself(GOOD_Accelerator):
    def pin_empty_like(
        self, tensor: torch.Tensor, device: Any = "cpu", dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        return (
            self._remembered(tensor)
            if dtype in (None, tensor.dtype)
            else super().pin_empty_like(tensor, device, dtype)
        )


@breaks("pinned_memory.locks_of_torch_are_told")
class LocksAreDenied(GOOD_Accelerator):
    torch_pins_host_memory = False


@breaks("pinned_memory.pinned_memory_is_host_memory")
class BuffersAnywhere(GOOD_Accelerator):
    def pin_empty(self, *size: Any, dtype: torch.dtype, device: Any = "cpu") -> torch.Tensor:
        return super().pin_empty(*size, dtype=dtype)


@breaks(
    "host_pins.inactive_allocator_is_left_alone",
    "host_pins.memory_goes_back_to_its_allocator",
    "pinned_memory.memory_can_be_unpinned",
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


@breaks("pinned_memory.pinned_memory_like_another_is_host_memory[meta]")
class BuffersLikeAnotherAreOfAnyDevice(GOOD_Accelerator):
    def pin_empty_like(
        self, tensor: torch.Tensor, device: Any = "cpu", dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        return super().pin_empty_like(tensor, dtype=dtype)


@breaks(
    "pinned_memory.locks_of_torch_are_told",
    "pinned_memory.device_memory_is_not_pinned",
    "pinned_memory.ordinary_memory_is_not_pinned",
    "host_pins.other_memory_stays_unpinned",
)
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
