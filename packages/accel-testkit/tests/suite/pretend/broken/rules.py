# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the checks made by rule notice: forgotten indices, state in the object, shared answers, traits that lie.

Mistakes of DeepSpeed's own backends have their row in UPSTREAM_BUGS.md: its checks have to find them.
"""

from contextlib import AbstractContextManager, suppress
from typing import Any

import pytest
import torch
from accel_good.accelerator import GOOD_Accelerator
from accel_good.streams import Stream
from accel_good.traits import TRAITS

from accel_core.vendor import Trait
from broken import Site, breaks, broken

_REASON = "nobody has tried this out on the device"


def _declares(name: str) -> type[GOOD_Accelerator]:
    """A class with one more trait."""

    class Declaring(GOOD_Accelerator):
        def __init__(self) -> None:
            super().__init__()
            self.traits = {**TRAITS, name: Trait.unsupported(_REASON)}

    return Declaring


for _name in ("graphs", "events", "pinned_memory", "bf16", "fp16", "fp64", "reserved_memory", "memory_peaks"):
    breaks(f"traits.declared_feature_is_missing[{_name}]", name=f"{_name}_are_declared_missing")(
        _declares(_name)
    )
breaks("traits.traits_name_features_and_ops", name="OpIsThereAndDeclaredMissing")(_declares("UtilsBuilder"))
breaks(
    "traits.declared_feature_is_missing[indexed_devices]",
    "device_index.index_of_the_only_device_is_accepted",
    name="IndicesAreDeclaredMissing",
)(_declares("indexed_devices"))


@breaks("collectives.declared_operation_fails", started="answers")
class BroadcastIsDeclaredMissing(_declares("broadcast")):  # type: ignore[misc]
    pass


@breaks("training.declared_failure_is_one", started="pair")
class RanksAreDeclaredMissing(_declares("zero3_ranks")):  # type: ignore[misc]
    pass


@breaks("package.declared_change_is_made", started="report")
def change_of_the_environment_is_declared(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRAITS, "untouched_environment", Trait.unsupported(_REASON))


@breaks(
    "device_index.index_of_the_only_device_is_accepted[memory_allocated]",
    "traits.declared_feature_is_missing device_index.index_of_no_device_is_treated_alike",
    "device.device_without_an_index_is_the_type memory.asking_leaves_the_cache",
    "answers.answer_has_its_type[memory_allocated]",
)
class OnlyDeviceRefusesItsIndex(_declares("indexed_devices")):  # type: ignore[misc]
    def device(self, device_index: int | None = None) -> torch.device:
        return super().device(0)  # type: ignore[no-any-return]

    def memory_allocated(self, device_index: int | None = None) -> int:
        if device_index is not None:
            raise RuntimeError("there are no indices")
        return super().memory_allocated()  # type: ignore[no-any-return]


@breaks("streams.context_without_a_stream_or_graph streams.lazy_call_calls")
class ErrorsAreSwallowed(GOOD_Accelerator):
    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        return suppress(KeyError) if stream is None else super().stream(stream)

    def lazy_call(self, callback: Any) -> Any:
        with suppress(KeyError):
            return callback()


broken(
    "ZeroIsNoIndex",
    "device_index.index_chooses_the_device[memory_allocated]",
    "device_index.device_as_an_index_is_that_device[memory_allocated]",
    memory_allocated=lambda self, device_index=None: GOOD_Accelerator.memory_allocated(
        self, 0 if isinstance(device_index, str) else device_index or None
    ),
)


@breaks("device_index.no_index_is_the_current_device[current_stream]")
class NoIndexIsZero(GOOD_Accelerator):
    def current_stream(self, device_index: int | None = None) -> Stream:
        stream: Stream = super().current_stream(device_index or 0)
        return stream


broken(
    "AnyIndexIsTaken",
    "device_index.index_without_a_device_is_refused[memory_reserved]",
    "device_index.index_without_a_device_is_refused[memory_cached]",
    "device_index.device_as_an_index_is_that_device[memory_cached]",
    "device_index.device_as_an_index_is_that_device[memory_reserved]",
    memory_reserved=lambda self, device_index=None: GOOD_Accelerator.memory_reserved(
        self, None if device_index not in (0, 1) else device_index
    ),
)


broken(
    "TensorIsDeniedOnDevice1",
    "device.constructor_uses_the_current_device[LongTensor]",
    on_accelerator=lambda self, tensor: (
        GOOD_Accelerator.on_accelerator(self, tensor)
        and (self.current_device() == 0 or tensor.dtype != torch.int64)
    ),
)


@breaks("device.current_device_stays[total_memory]")
class AskingChoosesTheDevice(GOOD_Accelerator):
    def total_memory(self, device_index: int | None = None) -> int:
        if device_index is not None:
            self.set_device(device_index)
        return super().total_memory()


broken(
    "DeviceObjectsAreDevice0",
    "device.device_that_is_set_gets_the_tensors[by device-here]",
    "device.device_that_is_set_gets_the_tensors[by device-in a thread]",
    set_device=lambda self, device_index: GOOD_Accelerator.set_device(
        self, 0 if isinstance(device_index, torch.device) else device_index
    ),
)
broken(
    "NoDeviceIsDevice0",
    "device.set_device_with_no_device_changes_nothing[None]",
    set_device=lambda self, device_index: GOOD_Accelerator.set_device(
        self, 0 if device_index is None else device_index
    ),
)


@breaks("device.each_thread_has_its_current_device")
class ThreadsShareTheCurrentDevice(GOOD_Accelerator):
    chosen = 0

    def set_device(self, device_index: Any) -> None:
        super().set_device(device_index)
        type(self).chosen = super().current_device()

    def current_device(self) -> int:
        super().set_device(type(self).chosen)
        return super().current_device()


@breaks("answers.answer_stays[communication_backend_version]")
class VersionIsTheFirstObjects(GOOD_Accelerator):
    objects = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).objects += 1
        self.version = type(self).objects

    def communication_backend_version(self) -> tuple[int, ...]:
        return (1, self.version)


@breaks("answers.answer_is_the_caller_s_own[export_envs] environment.exports_have_what_ranks_need")
class ExportsAreItsOwnList(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self.exported = super().export_envs()

    def export_envs(self) -> list[str]:
        return self.exported


broken(
    "QueuedWorkIsTimedOnTheHost",
    "answers.synchronized_device_has_no_streams answers.events_time_where_there_are_events",
    is_synchronized_device=lambda self: False,
    use_host_timers=lambda self: True,
)
broken(
    "NothingIsOrderedThoughSynchronized",
    "answers.runtime_that_waits_for_memory_orders_its_use",
    "answers.synchronized_device_leaves_nothing_to_do[resolves_data_dependency]",
    resolves_data_dependency=lambda self: False,
)
broken(
    "VersionIsText",
    "answers.version_of_the_collectives_is_a_version",
    communication_backend_version=lambda self: "2.21.5",
)


@breaks(
    "answers.setting_that_fails_changes_nothing[set_compile_backend]",
    "answers.each_compile_backend_can_be_set",
)
class BackendIsSetBeforeItIsChecked(GOOD_Accelerator):
    def set_compile_backend(self, backend: str) -> None:
        self._compile_backend = backend
        if backend not in ("eager", "inductor"):
            raise ValueError(backend)


# --- mistakes of DeepSpeed's own backends, by their row in UPSTREAM_BUGS.md: the row's checks have to find them

# As on mps: there is an event class, and the host's clock is used.
broken(
    "T12_EventIsNone",
    "streams.event_is_done_once_its_work_is streams.events_tell_milliseconds",
    "streams.each_event_is_its_own",
    Event=property(lambda self: None),
)
# As on mps.
broken(
    "T12_HalfTypesAreDenied",
    "answers.type_that_is_not_declared_missing_is_supported[bf16]",
    is_bf16_supported=lambda self: False,
    is_fp16_supported=lambda self: False,
)
# DeepSpeed's classes leave out what other processes use instead.
broken(
    "T26_AvailableLeavesOutTheCache",
    "answers.cached_memory_is_available",
    available_memory=lambda self, device_index=None: (
        GOOD_Accelerator.available_memory(self, device_index) - self._unused_memory(device_index)
    ),
)
# As on hpu and xpu.
broken("T28_NothingIsExported", "environment.exports_have_what_ranks_need", export_envs=lambda self: [])
