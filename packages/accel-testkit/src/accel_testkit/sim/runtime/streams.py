# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Streams and events: subclasses of torch's own."""

from __future__ import annotations

from typing import Any

import torch

from accel_testkit.sim.runtime.device import index_of
from accel_testkit.sim.simulation import Simulation


class StreamContext:
    """A context in which a stream and its device are current."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.before: list[Any] = []

    def __enter__(self) -> None:
        if self.stream is None:
            return
        device = torch.accelerator.current_device_index()
        self.before = [device, torch.accelerator.current_stream(self.stream.device_index)]
        torch.accelerator.set_stream(self.stream)

    def __exit__(self, *_error: object) -> None:
        if self.stream is None:
            return
        device, stream = self.before
        torch.accelerator.set_stream(stream)
        torch.accelerator.set_device_index(device)


def exports(simulation: Simulation) -> dict[str, Any]:
    """Return the names that this module adds to the vendor's module."""
    Event = _event_class(simulation)
    Stream = _stream_class(simulation, Event)

    def wrapped(stream: torch.Stream) -> Any:
        return Stream(
            stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
        )

    def current_stream(device: Any = None) -> Any:
        return wrapped(torch.accelerator.current_stream(index_of(device)))

    def default_stream(device: Any = None) -> Any:
        stream = torch.accelerator.current_stream(index_of(device))
        return Stream(stream_id=0, device_index=stream.device_index, device_type=stream.device_type)

    def set_stream(stream: Any) -> None:
        if stream is not None:
            torch.accelerator.set_stream(stream)

    return {
        "Stream": Stream,
        "Event": Event,
        "StreamContext": StreamContext,
        "stream": StreamContext,
        "current_stream": current_stream,
        "default_stream": default_stream,
        "set_stream": set_stream,
    }


def _event_class(simulation: Simulation) -> Any:
    class Event(torch.Event):
        """A marker in a stream."""

        def __new__(
            cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
        ) -> Any:
            return super().__new__(
                cls,
                simulation.type,
                enable_timing=enable_timing,
                blocking=blocking,
                interprocess=interprocess,
            )

        def __init__(self, enable_timing: bool = False, *_args: Any, **_kwargs: Any) -> None:
            self.timed = enable_timing

        def record(self, stream: Any = None) -> None:
            super().record(torch.accelerator.current_stream() if stream is None else stream)

        def wait(self, stream: Any = None) -> None:
            super().wait(torch.accelerator.current_stream() if stream is None else stream)

        def elapsed_time(self, end_event: Any) -> float:
            if not (self.timed and end_event.timed):
                raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
            # torch.Event takes no subclass here.
            elapsed: float = simulation.native.event_elapsed_ms(self.event_id, end_event.event_id)
            return elapsed

    return Event


def _stream_class(simulation: Simulation, Event: Any) -> Any:
    class Stream(torch.Stream):
        """A queue of work on a device."""

        def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Any:
            if kwargs:
                return super().__new__(cls, priority=priority, **kwargs)
            return super().__new__(cls, torch.device(simulation.type, index_of(device)), priority=priority)

        def record_event(self, event: Any = None) -> Any:
            event = Event() if event is None else event
            event.record(self)
            return event

        def wait_event(self, event: Any) -> None:
            event.wait(self)

        def wait_stream(self, stream: Any) -> None:
            event = Event()
            event.record(stream)
            event.wait(self)

    if simulation.type != "sdaa":
        setattr(Stream, f"{simulation.type}_stream", property(lambda self: self.native_handle))
    return Stream
