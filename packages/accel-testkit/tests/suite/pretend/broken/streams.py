# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Streams, events and lazy calls: work elsewhere, events that are never done, callbacks that are forgotten."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

from accel_good.accelerator import GOOD_Accelerator
from accel_good.streams import Event, Stream

from broken import breaks, broken

broken(
    "DefaultStreamIsTheCurrentOne",
    "streams.default_stream_stays",
    default_stream=lambda self, device_index=None: GOOD_Accelerator.current_stream(self, device_index),
)
broken(
    "CurrentStreamIsNew",
    "streams.blocks_nest streams.current_stream_is_the_default_at_first",
    "streams.stream_is_chosen_for_one_thread streams.stream_is_left_by_an_exception",
    "streams.stream_is_of_the_device_named graphs.capture_is_on_its_stream_and_pool",
    current_stream=lambda self, device_index=None: Stream(device_index or 0),
)
broken(
    "StreamsIgnoreTheIndex",
    "device_index.index_chooses_the_device[current_stream] streams.stream_is_of_the_device_named",
    current_stream=lambda self, device_index=None: GOOD_Accelerator.current_stream(self),
)


@breaks("streams.stream_is_left_by_an_exception")
class StreamSwallowsExceptions(GOOD_Accelerator):
    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        with suppress(RuntimeError), super().stream(stream):
            yield


@breaks("streams.blocks_nest")
class LeavingMeansTheDefaultStream(GOOD_Accelerator):
    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        streams = self.device_module.streams
        try:
            with super().stream(stream):
                yield
        finally:
            streams.current[:] = streams.default


class _Waitless(Stream):
    wait_event = None  # type: ignore[assignment]


@breaks("streams.streams_wait_for_each_other")
class StreamsDoNotWait(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self.device_module.streams.default[:] = self.device_module.streams.current[:] = [
            _Waitless(0),
            _Waitless(1),
        ]


# --- events: never done, in seconds, absent, given out twice


class _Pending(Event):
    def query(self) -> bool:
        return False


broken("EventIsNeverDone", "streams.event_is_done_once_its_work_is", Event=property(lambda self: _Pending))


class _Seconds(Event):
    def elapsed_time(self, end: Event) -> float:
        return super().elapsed_time(end) / 1000


broken("EventsTellSeconds", "streams.events_tell_milliseconds", Event=property(lambda self: _Seconds))


@breaks("streams.each_event_is_its_own")
class EventsAreAPool(GOOD_Accelerator):
    _pool: ClassVar[list[Event]] = []

    @property
    def Event(self) -> Any:
        def take(**settings: Any) -> Event:
            pool = type(self)._pool
            pool.append(Event(**settings) if len(pool) < 16 else pool.pop(0))
            return pool[-1]

        return take


# --- callbacks of `lazy_call` that are never called

broken("LazyCallForgets", "streams.lazy_call_calls", lazy_call=lambda self, callback: None)
