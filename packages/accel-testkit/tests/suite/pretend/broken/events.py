# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Events: never done, in seconds, absent, given out twice."""

from __future__ import annotations

from typing import Any, ClassVar

from accel_good.accelerator import GOOD_Accelerator
from accel_good.streams import Event

from broken import breaks, broken


class _Pending(Event):
    def query(self) -> bool:
        return False


broken("EventIsNeverDone", "streams.event_is_done_once_its_work_is", Event=property(lambda self: _Pending))


class _Seconds(Event):
    def elapsed_time(self, end: Event) -> float:
        return super().elapsed_time(end) / 1000


broken("EventsTellSeconds", "streams.events_tell_milliseconds", Event=property(lambda self: _Seconds))
broken(
    "NothingTellsTime",
    "answers.events_time_where_there_are_events streams.event_is_done_once_its_work_is",
    "streams.events_tell_milliseconds streams.each_event_is_its_own",
    Event=property(lambda self: None),
    use_host_timers=lambda self: False,
)


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
