# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Variants that do not wait, on the simulated NPU: `python -m simulated` runs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch_npu
from simulated import Good

_RUNTIME = torch_npu.npu
_SYNCHRONIZE = "asynchrony.synchronize_waits"
_FORMS = [f"{_SYNCHRONIZE}[{form}]" for form in ("None", "index", "index by name", "nothing")]
_EVERY_STREAM = "asynchrony.synchronize_waits_for_every_stream"
_ITS_DEVICE = "asynchrony.synchronize_waits_for_its_device"
_HOST = "asynchrony.host_waits_for_a_stream"
_DEVICE = "asynchrony.device_waits_for_a_stream"
_IN_USE = "asynchrony.host_waits_for_the_stream_in_use"
_UNNAMED = "asynchrony.host_waits_for_the_stream_in_use[event]"
_AGAIN = "asynchrony.event_recorded_again_marks_the_later_work"
_DONE = "asynchrony.event_that_is_done_is_of_work_that_is"
_NAMED = "asynchrony.event_makes_the_named_stream_wait"
_OWN = "asynchrony.events_are_marks_of_their_own"
_AFTER = "asynchrony.work_after_an_exception_is_in_the_former_stream"
_DEFAULT = f"{_DEVICE}[default_stream().wait_event(event)]"
_RECORD = f"{_HOST}[event.record(), event.synchronize()]"
_RECORD_IN = f"{_HOST}[event.record(stream), event.synchronize()]"


class Waiting(Good):
    """The files whose checks are about waiting."""

    files = ("test_asynchrony.py", "test_streams.py")


class SynchronizeDoesNothing(Waiting):
    fails = (
        *_FORMS,
        _EVERY_STREAM,
        *(f"{_ITS_DEVICE}[{pair}]" for pair in ("0-1", "1-0", "1-None", "1-1")),
    )

    def synchronize(self, device_index: int | None = None) -> None:
        pass


class SynchronizeWaitsForTheCurrentDevice(Waiting):
    fails = (f"{_ITS_DEVICE}[0-1]", f"{_ITS_DEVICE}[1-0]")

    def synchronize(self, device_index: int | None = None) -> None:
        super().synchronize()


class SynchronizeWaitsForDevice0(Waiting):
    fails = (f"{_ITS_DEVICE}[1-None]",)

    def synchronize(self, device_index: int | None = None) -> None:
        super().synchronize(device_index or 0)


class SynchronizeWaitsForOneStream(Waiting):
    fails = (_EVERY_STREAM,)

    def synchronize(self, device_index: int | None = None) -> None:
        self.current_stream(device_index).synchronize()


class SynchronizeByNameIsForgotten(Waiting):
    fails = (f"{_SYNCHRONIZE}[index by name]", f"{_SYNCHRONIZE}[index]", f"{_ITS_DEVICE}[0-1]")
    fails += (f"{_ITS_DEVICE}[1-0]", f"{_ITS_DEVICE}[1-1]")

    def synchronize(self, device_index: int | None = None) -> None:
        if device_index is None:
            super().synchronize()


class NothingIsInFlight(Waiting):
    fails = ("asynchrony.synchronized_device_needs_no_wait",)

    def is_synchronized_device(self) -> bool:
        return True


class _Event(_RUNTIME.Event):  # type: ignore[misc]
    """An event of the runtime, to be broken."""


class _WaitsForNothing(_Event):
    def wait(self, stream: Any = None) -> None:
        pass


class EventWaitDoesNothing(Waiting):
    fails = (
        _DEFAULT,
        f"{_DEVICE}[event.wait()]",
        f"{_DEVICE}[event.wait(stream)]",
        f"{_AGAIN}[device]",
        _NAMED,
    )

    @property
    def Event(self) -> Any:
        return _WaitsForNothing


class _MakesTheCurrentStreamWait(_Event):
    def wait(self, stream: Any = None) -> None:
        super().wait()


class EventWaitIgnoresTheStream(Waiting):
    fails = (_NAMED,)

    @property
    def Event(self) -> Any:
        return _MakesTheCurrentStreamWait


class _AlwaysDone(_Event):
    def query(self) -> bool:
        return True


class EventIsAlwaysDone(Waiting):
    fails = (_DONE,)

    @property
    def Event(self) -> Any:
        return _AlwaysDone


class _SynchronizesNothing(_Event):
    def synchronize(self) -> None:
        pass


class EventSynchronizeDoesNothing(Waiting):
    fails = (_RECORD, _RECORD_IN, _UNNAMED, f"{_AGAIN}[host]", _OWN)

    @property
    def Event(self) -> Any:
        return _SynchronizesNothing


class _RecordsOnce(_Event):
    def record(self, stream: Any = None) -> None:
        if not self.event_id:
            super().record(stream)


class EventIsRecordedOnce(Waiting):
    fails = (f"{_AGAIN}[device]", f"{_AGAIN}[host]")

    @property
    def Event(self) -> Any:
        return _RecordsOnce


class _RecordsTheDefaultStream(_Event):
    def record(self, stream: Any = None) -> None:
        super().record(_RUNTIME.default_stream() if stream is None else stream)


class EventIsOfTheDefaultStream(Waiting):
    fails = (_RECORD, f"{_AGAIN}[device]", f"{_AGAIN}[host]", _OWN, _DONE)

    @property
    def Event(self) -> Any:
        return _RecordsTheDefaultStream


class _IgnoresTheStream(_Event):
    def record(self, stream: Any = None) -> None:
        super().record()


class EventIgnoresTheStream(Waiting):
    fails = (_DEFAULT, _RECORD_IN, f"{_DEVICE}[event.wait()]", f"{_DEVICE}[event.wait(stream)]", _NAMED)

    @property
    def Event(self) -> Any:
        return _IgnoresTheStream


class _Unsynchronized(_RUNTIME.Stream):  # type: ignore[misc]
    def synchronize(self) -> None:
        pass


class StreamSynchronizeDoesNothing(Waiting):
    fails = (f"{_HOST}[stream.synchronize()]",)

    @property
    def Stream(self) -> Any:
        return _Unsynchronized


class CurrentStreamIsTheDefaultOne(Waiting):
    fails = (
        f"{_HOST}[current_stream().synchronize()]",
        "streams.blocks_nest",
        "streams.blocks_nest",
        "streams.blocks_nest",
        "streams.stream_is_of_the_device_named",
        "streams.stream_is_of_the_device_named",
    )

    def current_stream(self, device_index: int | None = None) -> Any:
        return super().default_stream(device_index)


class DefaultStreamIsNew(Waiting):
    fails = (
        _AFTER,
        _DEFAULT,
        f"{_IN_USE}[default_stream]",
        "streams.current_stream_is_the_default_at_first",
        "streams.default_stream_stays",
        "streams.stream_is_chosen_for_one_thread",
    )

    def default_stream(self, device_index: int | None = None) -> Any:
        return self.Stream()


class StreamIsNeverChosen(Waiting):
    fails = (
        _RECORD_IN,
        f"{_HOST}[stream.record_event().synchronize()]",
        f"{_HOST}[stream.synchronize()]",
        "streams.blocks_nest",
        "streams.blocks_nest",
        "streams.blocks_nest",
        "streams.stream_is_of_the_device_named",
        "streams.stream_is_of_the_device_named",
    )

    def stream(self, stream: Any) -> Any:
        return nullcontext()


class StreamStaysAfterAnException(Waiting):
    fails = (_AFTER, "streams.stream_is_left_by_an_exception")

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        context = super().stream(stream)
        context.__enter__()
        yield
        context.__exit__(None, None, None)


VARIANTS: tuple[Any, ...] = (
    SynchronizeDoesNothing,
    SynchronizeWaitsForTheCurrentDevice,
    SynchronizeWaitsForDevice0,
    SynchronizeWaitsForOneStream,
    SynchronizeByNameIsForgotten,
    NothingIsInFlight,
    EventWaitDoesNothing,
    EventWaitIgnoresTheStream,
    EventIsAlwaysDone,
    EventSynchronizeDoesNothing,
    EventIsRecordedOnce,
    EventIsOfTheDefaultStream,
    EventIgnoresTheStream,
    StreamSynchronizeDoesNothing,
    CurrentStreamIsTheDefaultOne,
    DefaultStreamIsNew,
    StreamIsNeverChosen,
    StreamStaysAfterAnException,
)
