# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Streams and events: subclasses of torch's own."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import torch

from accel_sim import surface
from accel_sim.errors import absent
from accel_sim.runtime.device import Indices
from accel_sim.simulation import Simulation


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


#: The native handle's attribute is called after the device type, on xpu after SYCL's word.
_HANDLES = {"xpu": ("sycl_queue", "sycl_event")}
#: Lowest and highest priority of a stream; a lower number comes first.
_PRIORITIES = {"cuda": (0, -5), "xpu": (1, -1), "mlu": (0, -3)}
#: They refuse a positive priority.
_REFUSING = ("cuda", "mlu")
#: What torch's own classes have, and no device here does.
_PROCESSES = ("from_ipc_handle", "ipc_handle")


def exports(simulation: Simulation) -> dict[str, Any]:
    """Return the names that this module adds to the vendor's module."""
    indices = Indices(simulation)
    Event = _event_class(simulation)
    Stream = _stream_class(simulation, Event)
    kinds = {"Event": Event, "Stream": Stream}
    if simulation.type == "npu":
        kinds["SyncLaunchStream"] = _immediate_class(simulation, Stream)
    for kind in kinds.values():
        _refuse_the_rest(simulation, kind)

    def at(stream_id: int, device: Any) -> Any:
        index = indices.queued(device)
        kind = torch.accelerator.current_stream(index).device_type
        return Stream(stream_id=stream_id, device_index=index, device_type=kind)

    def current_stream(device: Any = None) -> Any:
        check_has_streams(device)
        return at(torch.accelerator.current_stream(indices.queued(device)).stream_id, device)

    def default_stream(device: Any = None) -> Any:
        check_has_streams(device)
        return at(0, device)

    def check_has_streams(device: Any) -> None:
        index = indices.queued(device)
        there = index == torch.accelerator.current_device_index() or simulation.native.has_streams(index)
        if simulation.type == "npu" and not there:
            raise RuntimeError(f"Uninitialized default NPU stream for device {index}")

    def set_stream(stream: Any) -> None:
        if stream is not None:
            torch.accelerator.set_stream(stream)

    return {
        **kinds,
        "StreamContext": StreamContext,
        "stream": StreamContext,
        "current_stream": current_stream,
        "default_stream": default_stream,
        "set_stream": set_stream,
    }


def _refuse_the_rest(simulation: Simulation, kind: Any) -> None:
    """Give a class the attributes of the real one that are not simulated: they raise NotSimulated."""
    full = f"{simulation.vendor.module}.{kind.__name__}"
    for name, entry in surface.load(simulation.vendor.surface).children(full).items():
        if not hasattr(kind, name) or name in _PROCESSES:
            refusal = absent(f"{full}.{name}")
            setattr(kind, name, refusal if entry.kind == "method" else property(refusal))


def _event_class(simulation: Simulation) -> Any:
    native = simulation.native

    class Event(torch.Event):
        """A marker in a stream."""

        def __new__(
            cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
        ) -> Any:
            flags = {"enable_timing": enable_timing, "blocking": blocking, "interprocess": interprocess}
            return super().__new__(cls, simulation.type, **flags)

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
            return float(native.event_elapsed_ms(self.event_id, end_event.event_id))

        def __repr__(self) -> str:
            state = f"{self.event_id:#x}" if self.event_id else "uninitialized"
            return f"<torch.{simulation.type}.Event {state}>"

    _add_event_names(simulation, Event)
    return Event


def _add_event_names(simulation: Simulation, Event: Any) -> None:
    """Add the names that one vendor's events have, and those that are called after the vendor."""
    handle = _HANDLES.get(simulation.type, ("", f"{simulation.type}_event"))[1]
    setattr(Event, handle, property(lambda self: self.event_id))
    Event._as_parameter_ = property(lambda self: ctypes.c_void_p(self.event_id))
    if simulation.type == "npu":
        Event.recorded_time = lambda self: simulation.native.event_time_us(self.event_id)
    if simulation.vendor.key == "klxpu" and os.environ.get("XPU_EVENT_KL3_ENABLE") != "1":
        Event.elapsed_time = lambda self, end_event: 0.0
    if simulation.type == "mlu":  # in microseconds
        Event.hardware_time = lambda self, end_event: 1000 * self.elapsed_time(end_event)


def _stream_class(simulation: Simulation, Event: Any) -> Any:
    simulated, by_stream = simulation.simulated, dict[int, int]()  # all objects of a stream have its priority
    least, greatest = _PRIORITIES.get(simulation.type, (0, -1))

    class Stream(torch.Stream):
        """A queue of work on a device."""

        def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Any:
            if kwargs:
                return super().__new__(cls, priority=priority, **kwargs)
            if priority > least and simulation.type in _REFUSING:
                raise RuntimeError(
                    f"Expected {simulation.type} stream priority to be less than or equal to 0, got {priority}"
                )
            if device is None or simulation.vendor.one_device:  # Habana's does not look at it
                stream = super().__new__(cls, simulation.type, priority=priority)
            else:
                with simulated["device"](device):
                    stream = super().__new__(cls, simulation.type, priority=priority)
            by_stream[stream.stream_id] = max(greatest, min(least, priority))
            return stream

        @property
        def priority(self) -> int:
            if simulation.type == "npu":
                raise RuntimeError("NPU dose not support Stream.get_priority() currently.")
            return by_stream.get(self.stream_id, 0)

        @staticmethod
        def priority_range() -> tuple[int, int]:
            if simulation.type == "npu":
                raise RuntimeError("NPU does not support Stream.priority_range() currently.")
            return least, greatest

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

    _add_stream_names(simulation, Stream)
    return Stream


def _immediate_class(simulation: Simulation, Stream: Any) -> Any:
    class SyncLaunchStream(Stream):  # type: ignore[misc]
        """A stream whose work is launched by the caller, not by a queue thread: errors are raised by the call."""

        def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Any:
            stream = super().__new__(cls, device, priority, **kwargs)
            simulation.native.carry_out_at_once(stream.stream_id)
            return stream

    return SyncLaunchStream


def _add_stream_names(simulation: Simulation, Stream: Any) -> None:
    """Add the names that one vendor's streams have, and those that are called after the vendor."""
    handle = _HANDLES.get(simulation.type, (f"{simulation.type}_stream", ""))[0]

    package = "torch_npu" if simulation.type == "npu" else "torch"

    def __repr__(self: Any) -> str:
        kind = f"{package}.{simulation.type}.{type(self).__name__}"
        return f"<{kind} device={self.device} {handle}={self.native_handle:#x}>"

    setattr(Stream, handle, property(lambda self: self.native_handle))
    Stream._as_parameter_ = property(lambda self: ctypes.c_void_p(self.native_handle))
    Stream.__repr__ = __repr__
    if simulation.type == "hpu":
        Stream.id = lambda self: self.stream_id
