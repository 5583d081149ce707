# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Events: never done, in seconds, absent, given out twice."""

from __future__ import annotations

from typing import Any, ClassVar

from accel_good.accelerator import GOOD_Accelerator
from accel_good.streams import Event

from broken import breaks


class _Pending(Event):
    def query(self) -> bool:
        return False


@breaks("streams.event_is_done_once_its_work_is")
class EventIsNeverDone(GOOD_Accelerator):
    @property
    def Event(self) -> Any:
        return _Pending


class _Seconds(Event):
    def elapsed_time(self, end: Event) -> float:
        return super().elapsed_time(end) / 1000


@breaks("streams.events_tell_milliseconds")
class EventsTellSeconds(GOOD_Accelerator):
    @property
    def Event(self) -> Any:
        return _Seconds


@breaks(
    "answers.events_time_where_there_are_events",
    "streams.event_is_done_once_its_work_is",
    "streams.events_tell_milliseconds",
    "streams.each_event_is_its_own",
)
class NothingTellsTime(GOOD_Accelerator):
    @property
    def Event(self) -> None:
        return None

    def use_host_timers(self) -> bool:
        return False


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
