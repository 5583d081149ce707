# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Memory figures that are missing, stale, or another device's; pinned copies without data, and pinned too little."""

import warnings

import torch
from accel_good.accelerator import GOOD_Accelerator as Good
from torch.utils.weak import WeakIdKeyDictionary

from broken import after, answers, breaks, table

_PEAK = "memory.figure_follows_tensors[max_memory_allocated]"
_RESET = "memory.peak_can_be_reset"

answers(
    {"max_memory_cached": None},
    "answers.answer_has_its_type[{}] memory.figures_are_in_order",
    f"{_RESET}[reset_max_memory_cached-max_memory_cached]",
)
table(
    # As it was on mps.
    ("PeakIsThePresent", f"{_RESET}[reset_max_memory_allocated-max_memory_allocated] "
     f"{_RESET}[reset_peak_memory_stats-max_memory_allocated] {_PEAK}",
     "max_memory_allocated", lambda self, device_index=None: self.memory_allocated(device_index)),
    ("PeakIsBelowThePresent", "memory.figures_are_in_order", "max_memory_allocated",
     lambda self, device_index=None: max(Good.max_memory_allocated(self, device_index) - 4096, 0)),
    ("PeakIsThatOfTheReserved", f"{_RESET}[reset_max_memory_allocated-max_memory_allocated] "
     f"{_RESET}[reset_peak_memory_stats-max_memory_allocated]",
     "max_memory_allocated", lambda self, device_index=None: self.max_memory_reserved(device_index)),
    ("PeaksAreNeverReset", f"{_RESET} {_PEAK} "
     "memory.figure_follows_tensors[max_memory_reserved]",
     "reset_peak_memory_stats", lambda self, device_index=None: None),
    ("ResetReachesAll", "device_index.reset_reaches_one_device",
     "reset_peak_memory_stats", lambda self, device_index=None: [
         Good.reset_peak_memory_stats(self, index) for index in range(self.device_count())]),
    ("AskingEmptiesTheCache", "memory.asking_leaves_the_cache",
     "memory_allocated", after(Good.memory_allocated, lambda self, device_index=None: self.empty_cache())),
    ("StatsLeaveOutZeros", "memory.statistics_agree_with_the_figures",
     "memory_stats", lambda self, device_index=None: {
         key: value for key, value in Good.memory_stats(self, device_index).items() if value}),
    ("StatsAreStale", "memory.statistics_agree_with_the_figures",
     "__init__", after(Good.__init__, lambda self: setattr(self, "stats", Good.memory_stats(self))),
     "memory_stats", lambda self, device_index=None: self.stats),
    # Figures of one group that do not agree.
    ("FreedBlocksAreNotCounted", "memory.statistics_are_whole",
     "memory_stats", lambda self, device_index=None: {
         **Good.memory_stats(self, device_index), "allocation.all.current": 3,
         "allocation.all.allocated": 5, "allocation.all.freed": 1}),
    ("EverythingIsAvailable", "memory.what_is_held_is_not_available memory.available_memory_falls "
     "device_index.index_chooses_the_device[available_memory]",
     "available_memory", lambda self, device_index=None: self.total_memory(device_index)),
    ("available_memory_is_one_more", "memory.figures_are_in_order",
     "available_memory", lambda self, device_index=None: Good.available_memory(self, device_index) + 1),
    # DeepSpeed's classes leave out what other processes use instead: see UPSTREAM_BUGS.md.
    ("T26_AvailableLeavesOutTheCache", "answers.cached_memory_is_available",
     "available_memory", lambda self, device_index=None: (
         Good.available_memory(self, device_index) - self._unused_memory(device_index))),
)  # fmt: skip


# --- pinned memory

_ANY = "pinned_memory.any_tensor_is_copied"

#: The first address of what is pinned is known for good.
_KEPT = (
    "__init__", after(Good.__init__, lambda self: setattr(self, "first", set())),
    "_remembered", after(Good._remembered, lambda self, tensor: self.first.add(tensor.data_ptr())),
)  # fmt: skip

answers(
    {"is_pinned": True},
    "pinned_memory.other_memory_is_not_taken_from_it pinned_memory.ordinary_memory_is_not_pinned",
)
answers({"pin_memory_alignment": 3}, "pinned_memory.alignment_is_a_number_of_bytes")
table(
    ("PinningCopiesNothing", "pinned_memory.memory_has_the_form_asked_for",
     "torch_pin_memory", lambda self, tensor: self._remembered(torch.zeros_like(tensor) - 1)),
    # Tensors that are not contiguous are copied as they lie.
    ("StridesAreIgnored", " ".join(f"{_ANY}[{kind}]" for kind in ("a column", "every other", "transposed")),
     "torch_pin_memory", lambda self, tensor: Good.torch_pin_memory(
         self, tensor.as_strided(tensor.shape, torch.empty(tensor.shape).stride()))),
    ("BuffersAnywhere", "pinned_memory.device_other_than_the_host_is_refused",
     "pin_empty", lambda self, *size, dtype, device="cpu": Good.pin_empty(self, *size, dtype=dtype)),
    # As it was on xpu.
    ("PinningWarns", "pinned_memory.nothing_deprecated_is_called",
     "torch_is_pinned", after(Good.torch_is_pinned, lambda self, tensor: warnings.warn(
         "the argument 'device' is deprecated", DeprecationWarning, stacklevel=2))),
    ("PagesAreNotWhole", "pinned_memory.memory_is_pinned",
     "pin_aligned", lambda self, tensor: self.torch_pin_memory(tensor)),
    ("OnlyTheFirstAddressIsPinned", "pinned_memory.memory_is_pinned", *_KEPT,
     "torch_is_pinned", lambda self, tensor: (
         tensor.data_ptr() in self.first and Good.torch_is_pinned(self, tensor))),
    # As it was on xpu.
    ("AddressesAreKept", "pinned_memory.freed_memory_is_not_pinned", *_KEPT,
     "torch_is_pinned", lambda self, tensor: (
         tensor.data_ptr() in self.first or Good.torch_is_pinned(self, tensor))),
    # Another allocator of pinned memory is counted wrongly.
    ("LockedBytesAreNotCounted",
     "pinned_memory.active_allocator_is_used",
     "_track", lambda self, nbytes: None),
    ("RefusalOfTheRuntimeIsHidden", "pinned_memory.registered_memory_can_be_given_back",
     "unregister_host_memory", lambda self, address: self._registered.discard(address)),
)  # fmt: skip


@breaks(f"{_ANY}[no rows]")
class BuffersHaveElements(Good):
    def torch_empty_pinned(self, tensor, shape):
        if 0 in shape:
            raise RuntimeError("cannot lock 0 bytes")
        return super().torch_empty_pinned(tensor, shape)


@breaks("pinned_memory.answer_follows_the_data_of_a_tensor")
class PinnedOnceIsPinnedForGood(Good):
    """It answers once for each tensor object."""

    def __init__(self):
        super().__init__()
        self._answers = WeakIdKeyDictionary()

    def is_pinned(self, tensor):
        return self._answers.setdefault(tensor, super().is_pinned(tensor))
