# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Devices: wrong types, wrong indices, ignored arguments."""

from __future__ import annotations

import os
import threading
from contextlib import nullcontext
from typing import Any

import torch
from accel_good.accelerator import GOOD_Accelerator
from accel_good.runtime import Runtime

from broken import SHAPES, answers, breaks

_STAYS = "device.current_device_stays"

for _question in (
    "is_available",
    "use_host_timers",
    "resolves_data_dependency",
    "handles_memory_backpressure",
):
    answers({_question: 1}, "answers.answer_has_its_type[{}]")


@breaks(
    "device.device_with_an_index_keeps_it",
    "device.device_without_an_index_is_the_type",
    "identity.name_is_the_torch_device_type",
    "tensors.constructor_takes_data",
    "tensors.tensor_elsewhere_is_not_on_the_accelerator",
    "memory.statistics_are_whole",
    "pinned_memory.device_other_than_the_host_is_refused",
)
class DeviceIsNone(GOOD_Accelerator):
    def device(self, device_index: int | None = None) -> Any:
        return None


@breaks(
    "answers.answer_has_its_type[handles_memory_backpressure]",
    "answers.answer_has_its_type[is_synchronized_device]",
    "answers.answer_has_its_type[resolves_data_dependency]",
    "answers.answer_has_its_type[use_host_timers]",
)
class SynchronizedIsANumber(GOOD_Accelerator):
    """And the answers that are derived from it."""

    def is_synchronized_device(self) -> Any:
        return 1


@breaks(
    "device.current_device_name_is_that_of_the_current_device",
    "device.device_with_an_index_keeps_it",
    "memory.figures_are_in_order",
    "device_index.reset_reaches_one_device",
    "memory.statistics_agree_with_the_figures",
    "tensors.tensor_of_any_index_is_on_the_accelerator",
    "graphs.replay_runs_the_work_once",
    "memory.asking_leaves_the_cache",
    "memory.statistics_are_whole",
    "graphs.no_graph_captures_nothing",
)
class DeviceIsAContext(GOOD_Accelerator):
    def device(self, device_index: int | None = None) -> Any:
        return nullcontext(device_index)


@breaks("device.device_without_an_index_is_the_type")
class DeviceIsTheCurrentOne(GOOD_Accelerator):
    def device(self, device_index: int | None = None) -> torch.device:
        return super().device(self.current_device() if device_index is None else device_index)


@breaks(
    "device.device_with_an_index_keeps_it",
)
class DeviceDropsTheIndex(GOOD_Accelerator):
    def device(self, device_index: int | None = None) -> torch.device:
        return torch.device("cpu")


@breaks(
    "identity.has_every_method",
    "graphs.replay_runs_the_work_once",
    "graphs.no_graph_captures_nothing",
)
class DeviceDemandsAnIndex(GOOD_Accelerator):
    def device(self, device_index: int) -> torch.device:  # type: ignore[override]
        return torch.device("cpu", device_index)


@breaks(
    "device.answer_is_of_the_current_device",
    "device.current_device_name_is_that_of_the_current_device",
    "device.device_with_an_index_keeps_it",
)
class NameDropsTheIndex(GOOD_Accelerator):
    def device_name(self, device_index: int | None = None) -> str:
        return "cpu"


@breaks(
    "device.current_device_name_is_that_of_the_current_device",
    "device.device_with_an_index_keeps_it",
)
class NameDropsIndexZero(GOOD_Accelerator):
    def device_name(self, device_index: int | None = None) -> str:
        return f"cpu:{device_index}" if device_index else "cpu"


@breaks("answers.answer_has_its_type[device_count]", "probe.confirmation_counts_the_devices")
class CountIsText(GOOD_Accelerator):
    def device_count(self) -> Any:
        return "2"


@breaks("device.device_is_available")
class NotAvailable(GOOD_Accelerator):
    def is_available(self) -> bool:
        return False


@breaks(
    "device.current_device_name_is_that_of_the_current_device",
    "device.setting_the_current_device_changes_nothing",
    "device.answer_is_of_the_current_device",
    "device.current_device_can_be_set",
    "answers.answer_has_its_type[current_device]",
    "device.synchronize_takes_each_form",
    "random.default_generator_is_the_one_in_use",
    "random.restored_state_repeats_the_numbers",
    "streams.current_stream_is_the_default_at_first",
    "streams.stream_is_of_the_device_named",
    "memory.asking_leaves_the_cache",
    "answers.answer_has_its_type[total_memory]",
    "memory.figures_are_in_order",
)
class CurrentDeviceIsText(GOOD_Accelerator):
    def current_device(self) -> Any:
        return str(super().current_device())


@breaks(
    "device.current_device_name_is_that_of_the_current_device",
    "device.answer_is_of_the_current_device",
    "device.current_device_can_be_set",
    "answers.answer_has_its_type[current_device]",
    "device.synchronize_takes_each_form",
    "random.default_generator_is_the_one_in_use",
    "random.restored_state_repeats_the_numbers",
    "streams.current_stream_is_the_default_at_first",
    "streams.stream_is_of_the_device_named",
    "memory.asking_leaves_the_cache",
    "answers.answer_has_its_type[total_memory]",
    "memory.figures_are_in_order",
)
class CurrentDeviceIsADevice(GOOD_Accelerator):
    def current_device(self) -> Any:
        return torch.device("cpu", super().current_device())


@breaks(
    "device.answer_is_of_the_current_device",
    "device.current_device_can_be_set",
)
class CurrentNameIsTheType(GOOD_Accelerator):
    def current_device_name(self) -> str:
        return "cpu"


@breaks(
    "device.answer_is_of_the_current_device",
    "device.index_out_of_range_is_refused",
    "random.seed_reaches_its_devices",
    "streams.stream_is_of_the_device_named",
)
class SetDeviceIsIgnored(GOOD_Accelerator):
    def set_device(self, device_index: int) -> None:
        pass


@breaks(
    "device.current_device_can_be_set",
    "device.index_out_of_range_is_refused",
    "random.restored_state_repeats_the_numbers",
    "random.seed_repeats_the_numbers",
    "random.state_that_was_read_stays",
    "streams.stream_is_of_the_device_named",
)
class SetDeviceAddsOne(GOOD_Accelerator):
    def set_device(self, device_index: int) -> None:
        super().set_device(1)


@breaks("device.index_out_of_range_is_refused")
class SetDeviceTakesAnyIndex(GOOD_Accelerator):
    def set_device(self, device_index: int) -> None:
        super().set_device(device_index if device_index in (0, 1) or not isinstance(device_index, int) else 0)


@breaks(
    "device.device_that_is_set_gets_the_tensors[by device-in a thread]",
    "device.device_that_is_set_gets_the_tensors[by name-in a thread]",
)
class ThreadsTakeAnIndexOnly(GOOD_Accelerator):
    def set_device(self, device_index: int) -> None:
        if isinstance(device_index, int) or threading.current_thread() is threading.main_thread():
            super().set_device(device_index)


@breaks("device.current_device_can_be_set")
class SetDeviceRefusesNames(GOOD_Accelerator):
    def set_device(self, device_index: int) -> None:
        super().set_device(device_index + 0)


@breaks(
    *SHAPES,
    "device.synchronize_takes_each_form",
)
class SynchronizeTakesNoIndex(GOOD_Accelerator):
    def synchronize(self) -> None:  # type: ignore[override]
        pass


@breaks("device.synchronize_takes_each_form")
class SynchronizeReturnsAnEvent(GOOD_Accelerator):
    def synchronize(self, device_index: int | None = None) -> Any:
        return Runtime.Event()


@breaks("device.variables_of_a_launcher_choose_nothing")
class DevicesAreTheRanksOfThisNode(GOOD_Accelerator):
    def device_count(self) -> int:
        return int(os.environ.get("LOCAL_WORLD_SIZE", super().device_count()))


@breaks("device.variables_of_a_launcher_choose_nothing")
class CurrentDeviceIsTheLocalRank(GOOD_Accelerator):
    def current_device(self) -> int:
        return int(os.environ.get("LOCAL_RANK", super().current_device()))


@breaks("device.set_device_counts_each_time")
class SameDeviceIsNotSetAgain(GOOD_Accelerator):
    _last: object = None

    def set_device(self, device_index: int) -> None:
        if device_index != self._last:
            super().set_device(device_index)
            self._last = device_index


@breaks(f"{_STAYS}[manual_seed_all]")
class SeedingAllVisitsAll(GOOD_Accelerator):
    def manual_seed_all(self, seed: int) -> None:
        for index in range(self.device_count()):
            self.set_device(index)
            self.manual_seed(seed)


@breaks(
    f"{_STAYS}[empty_cache]",
    "device_index.reset_reaches_one_device",
    "memory.each_device_has_its_figures[memory_reserved]",
    "memory.peak_can_be_reset",
    "memory.figure_follows_tensors[memory_reserved]",
    "memory.figure_follows_tensors[max_memory_reserved]",
)
class EmptyingChoosesDevice0(GOOD_Accelerator):
    def empty_cache(self) -> None:
        self.set_device(0)
