# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Devices and processes: wrong types, wrong indices, ignored arguments, contexts that are opened early."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from accel_good.accelerator import GOOD_Accelerator
from accel_good.runtime import Runtime

from accel_core.errors import InvalidEnvironment
from accel_core.vendor import Evidence
from broken import SHAPES, Site, answers, breaks, broken

_STAYS = "device.current_device_stays"

for _question in (
    "is_available",
    "use_host_timers",
    "resolves_data_dependency",
    "handles_memory_backpressure",
):
    answers({_question: 1}, "answers.answer_has_its_type[{}]")


broken(
    "DeviceIsNone",
    "device.device_with_an_index_keeps_it device.device_without_an_index_is_the_type",
    "identity.name_is_the_torch_device_type tensors.constructor_takes_data",
    "tensors.tensor_elsewhere_is_not_on_the_accelerator memory.statistics_are_whole",
    "pinned_memory.device_other_than_the_host_is_refused",
    device=lambda self, device_index=None: None,
)
# And the answers that are derived from it.
broken(
    "SynchronizedIsANumber",
    "answers.answer_has_its_type[handles_memory_backpressure]",
    "answers.answer_has_its_type[is_synchronized_device]",
    "answers.answer_has_its_type[resolves_data_dependency] answers.answer_has_its_type[use_host_timers]",
    is_synchronized_device=lambda self: 1,
)
broken(
    "DeviceIsAContext",
    "device.current_device_name_is_that_of_the_current_device device.device_with_an_index_keeps_it",
    "memory.figures_are_in_order device_index.reset_reaches_one_device",
    "memory.statistics_agree_with_the_figures tensors.tensor_of_any_index_is_on_the_accelerator",
    "graphs.replay_runs_the_work_once memory.asking_leaves_the_cache memory.statistics_are_whole",
    "graphs.no_graph_captures_nothing",
    device=lambda self, device_index=None: nullcontext(device_index),
)
broken(
    "DeviceIsTheCurrentOne",
    "device.device_without_an_index_is_the_type",
    device=lambda self, device_index=None: GOOD_Accelerator.device(
        self, self.current_device() if device_index is None else device_index
    ),
)
broken(
    "DeviceDropsTheIndex",
    "device.device_with_an_index_keeps_it",
    device=lambda self, device_index=None: torch.device("cpu"),
)
broken(
    "DeviceDemandsAnIndex",
    "identity.has_every_method graphs.replay_runs_the_work_once graphs.no_graph_captures_nothing",
    device=lambda self, device_index: torch.device("cpu", device_index),
)
broken(
    "NameDropsTheIndex",
    "device.answer_is_of_the_current_device device.current_device_name_is_that_of_the_current_device",
    "device.device_with_an_index_keeps_it",
    device_name=lambda self, device_index=None: "cpu",
)
broken(
    "NameDropsIndexZero",
    "device.current_device_name_is_that_of_the_current_device device.device_with_an_index_keeps_it",
    device_name=lambda self, device_index=None: f"cpu:{device_index}" if device_index else "cpu",
)
broken(
    "CountIsText",
    "answers.answer_has_its_type[device_count] probe.confirmation_counts_the_devices",
    device_count=lambda self: "2",
)
broken("NotAvailable", "device.device_is_available", is_available=lambda self: False)
broken(
    "CurrentDeviceIsText",
    "device.current_device_name_is_that_of_the_current_device",
    "device.setting_the_current_device_changes_nothing device.answer_is_of_the_current_device",
    "device.current_device_can_be_set answers.answer_has_its_type[current_device]",
    "device.synchronize_takes_each_form random.default_generator_is_the_one_in_use",
    "random.restored_state_repeats_the_numbers streams.current_stream_is_the_default_at_first",
    "streams.stream_is_of_the_device_named memory.asking_leaves_the_cache",
    "answers.answer_has_its_type[total_memory] memory.figures_are_in_order",
    current_device=lambda self: str(GOOD_Accelerator.current_device(self)),
)
broken(
    "CurrentDeviceIsADevice",
    "device.current_device_name_is_that_of_the_current_device device.answer_is_of_the_current_device",
    "device.current_device_can_be_set answers.answer_has_its_type[current_device]",
    "device.synchronize_takes_each_form random.default_generator_is_the_one_in_use",
    "random.restored_state_repeats_the_numbers streams.current_stream_is_the_default_at_first",
    "streams.stream_is_of_the_device_named memory.asking_leaves_the_cache",
    "answers.answer_has_its_type[total_memory] memory.figures_are_in_order",
    current_device=lambda self: torch.device("cpu", GOOD_Accelerator.current_device(self)),
)
broken(
    "CurrentNameIsTheType",
    "device.answer_is_of_the_current_device device.current_device_can_be_set",
    current_device_name=lambda self: "cpu",
)
broken(
    "SetDeviceIsIgnored",
    "device.answer_is_of_the_current_device device.index_out_of_range_is_refused",
    "random.seed_reaches_its_devices streams.stream_is_of_the_device_named",
    set_device=lambda self, device_index: None,
)
broken(
    "SetDeviceAddsOne",
    "device.current_device_can_be_set device.index_out_of_range_is_refused",
    "random.restored_state_repeats_the_numbers random.seed_repeats_the_numbers",
    "random.state_that_was_read_stays streams.stream_is_of_the_device_named",
    set_device=lambda self, device_index: GOOD_Accelerator.set_device(self, 1),
)
broken(
    "SetDeviceTakesAnyIndex",
    "device.index_out_of_range_is_refused",
    set_device=lambda self, device_index: GOOD_Accelerator.set_device(
        self, device_index if device_index in (0, 1) or not isinstance(device_index, int) else 0
    ),
)


@breaks(
    "device.device_that_is_set_gets_the_tensors[by device-in a thread]",
    "device.device_that_is_set_gets_the_tensors[by name-in a thread]",
)
class ThreadsTakeAnIndexOnly(GOOD_Accelerator):
    def set_device(self, device_index: int) -> None:
        if isinstance(device_index, int) or threading.current_thread() is threading.main_thread():
            super().set_device(device_index)


broken(
    "SetDeviceRefusesNames",
    "device.current_device_can_be_set",
    set_device=lambda self, device_index: GOOD_Accelerator.set_device(self, device_index + 0),
)
broken(
    "SynchronizeTakesNoIndex", *SHAPES, "device.synchronize_takes_each_form", synchronize=lambda self: None
)
broken(
    "SynchronizeReturnsAnEvent",
    "device.synchronize_takes_each_form",
    synchronize=lambda self, device_index=None: Runtime.Event(),
)
broken(
    "DevicesAreTheRanksOfThisNode",
    "device.variables_of_a_launcher_choose_nothing",
    device_count=lambda self: int(os.environ.get("LOCAL_WORLD_SIZE", GOOD_Accelerator.device_count(self))),
)
broken(
    "CurrentDeviceIsTheLocalRank",
    "device.variables_of_a_launcher_choose_nothing",
    current_device=lambda self: int(os.environ.get("LOCAL_RANK", GOOD_Accelerator.current_device(self))),
)


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


broken(
    "EmptyingChoosesDevice0",
    f"{_STAYS}[empty_cache]",
    "device_index.reset_reaches_one_device memory.each_device_has_its_figures[memory_reserved]",
    "memory.peak_can_be_reset memory.figure_follows_tensors[memory_reserved]",
    "memory.figure_follows_tensors[max_memory_reserved]",
    empty_cache=lambda self: self.set_device(0),
)


# --- fresh processes: contexts that are opened early, devices that are not visible, machines without one

_FORKED = "processes.nothing_is_opened_before_the_first_use"
_ONE = "processes.process_has_the_devices_that_it_is_shown[one]"
_NONE = "processes.process_has_the_devices_that_it_is_shown"
_PROBE = "processes.probe_counts_what_the_process_has"


class _WithContext(GOOD_Accelerator):
    """Its context belongs to the process that opened it."""

    _opened = 0

    def open(self) -> None:
        self._opened = self._opened or os.getpid()

    def device(self, device_index: int | None = None) -> Any:
        if self._opened not in (0, os.getpid()):
            raise RuntimeError("Cannot re-initialize the device in forked subprocess")
        return super().device(device_index)


@breaks(_FORKED, started="seen")
class CountingOpensAContext(_WithContext):
    def device_count(self) -> int:
        self.open()
        return super().device_count()


@breaks(_FORKED, started="seen")
class AskingOpensAContext(_WithContext):
    def is_available(self) -> bool:
        self.open()
        return super().is_available()


@breaks(_FORKED, started="seen")
class ConstructionOpensAContext(_WithContext):
    def __init__(self) -> None:
        super().__init__()
        self.open()


@breaks(_ONE, started="seen")
class VisibleDevicesAreIgnored(GOOD_Accelerator):
    def device_count(self) -> int:
        return 2

    def is_available(self) -> bool:
        return True


@breaks("processes.process_has_the_devices_that_it_is_shown[turned round]", started="seen")
class SecondIdIsIgnored(GOOD_Accelerator):
    def set_visible_devices_envs(self, current_env: Any, local_accelerator_ids: Any) -> None:
        super().set_visible_devices_envs(current_env, local_accelerator_ids[:1])


@breaks(_NONE, started="seen")
class DeviceIsAlwaysAvailable(GOOD_Accelerator):
    def is_available(self) -> bool:
        return True


@breaks(_NONE, started="seen")
class ConstructionNeedsADevice(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        if not self.device_count():
            raise RuntimeError("there is no device")


_LAZY = "processes.lazy_calls_come_with_the_first_use"
_RANK = "processes.rank_uses_the_device_of_its_local_rank"
_MEMORY = "processes.memory_that_is_used_first_is_not_available"


class _Unready(GOOD_Accelerator):
    """Its runtime is initialized by synchronize()."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[], Any]] = []
        self.ready = False

    def synchronize(self, device_index: int | None = None) -> None:
        super().synchronize(device_index)
        self.ready = True
        while self.waiting:
            self.waiting.pop()()


@breaks(_LAZY, started="seen")
class EarlyLazyCallsAreDropped(_Unready):
    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        return callback() if self.ready else None


@breaks(_LAZY, started="seen")
class EarlyLazyCallsAreReversed(_Unready):
    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        return callback() if self.ready else self.waiting.append(callback)


@breaks(f"{_RANK}[local rank 1]", started="seen")
class FirstSetDeviceIsIgnored(_Unready):
    def set_device(self, device_index: int) -> None:
        if self.ready:
            super().set_device(device_index)


def _rank(default: int) -> int:
    return int(os.environ.get("RANK", default)) % 2


@breaks(f"{_RANK}[local rank 0]", started="seen")
class ConstructionChoosesTheDeviceOfTheRank(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        super().set_device(_rank(0))


@breaks(_RANK, started="seen")
class CurrentDeviceIsTheRank(GOOD_Accelerator):
    def current_device(self) -> int:
        return _rank(super().current_device())


@breaks(_MEMORY, started="seen")
class EverythingIsAvailableAtFirst(GOOD_Accelerator):
    def available_memory(self, device_index: int | None = None) -> int:
        return self.total_memory(device_index)


@breaks(*(f"{_PROBE}[{name}]" for name in ("absent", "none", "one")), started="seen")
def probe_counts_all_devices(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.edit("probe.py", "visible.count(runtime.DEVICES)", "runtime.DEVICES")


@breaks(*(f"{_PROBE}[{name}]" for name in ("absent", "all", "none")), started="seen")
def probe_counts_one_device(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.edit("probe.py", "visible.count(runtime.DEVICES)", "1")


@breaks(_NONE, *(f"{_PROBE}[{name}]" for name in ("absent", "none")), started="seen")
def probe_raises_without_a_device(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.edit(
        "probe.py", "    return Confirmation(", "    visible.count(2) or 1 / 0\n    return Confirmation("
    )


# --- what the checks of the probe notice: a variable that is said to be unset, a refusal that is not told

_EVIDENCE = "probe"


@breaks(f"{_EVIDENCE}.evidence_is_true_of_the_environment")
def variable_is_never_set(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """GOOD_VISIBLE_DEVICES, which the package names, is said to be unset even where it is."""
    said = Evidence(runtime=True, hardware=True, reason="all devices: GOOD_VISIBLE_DEVICES is not set")
    monkeypatch.setattr("accel_good.probe.evidence", lambda: said)


@breaks(f"{_EVIDENCE}.confirmation_tells_of_lists_that_are_refused")
class RefusalIsNotTold(GOOD_Accelerator):
    """Lists that do not ascend are refused, and confirm() does not say so of a variable that has one."""

    def set_visible_devices_envs(
        self, current_env: MutableMapping[str, str], local_accelerator_ids: Sequence[int | str]
    ) -> None:
        if list(local_accelerator_ids) == [1, 0]:
            raise InvalidEnvironment(what="no order", found="1, 0", expected="0, 1", do="sort them")
        super().set_visible_devices_envs(current_env, local_accelerator_ids)
