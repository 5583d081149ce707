# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Signs that a feature is there, which a trait may declare missing: in the accelerator's answers, and in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor import Feature

_BLOCK = 40 << 20
_SEEN = 30 << 20
Sign = str


def _present(**signs: object) -> Sign:
    """Text of the signs that a feature is there; empty where there is none."""
    return ", ".join(name for name, sign in signs.items() if sign)


def _indexed_devices(acc: DeepSpeedAccelerator) -> Sign:
    places = {torch.empty(1, device=acc.device(index)).device for index in (0, 1)}
    return _present(
        device_keeps_an_index=acc.device(1) != acc.device() or acc.device(0) != acc.device(),
        device_name_keeps_an_index={acc.device_name(i) for i in (0, 1, None)} != {acc.device_name()},
        tensors_on_two_devices=len(places) > 1,
    )


def _module_has(acc: DeepSpeedAccelerator, name: str) -> bool:
    """Whether torch's module of the type has it; torch.cpu's streams and events queue and time nothing."""
    type_name = acc.device().type
    return type_name != "cpu" and hasattr(getattr(torch, type_name, None), name)


def _streams(acc: DeepSpeedAccelerator) -> Sign:
    return _present(
        Stream_of_torch_s_module=_module_has(acc, "Stream"),
        Stream=acc.Stream is not None,
        current_stream=acc.current_stream() is not None,
        default_stream=acc.default_stream() is not None,
        queued_work=not acc.is_synchronized_device(),
    )


def _default_stream(acc: DeepSpeedAccelerator) -> Sign:
    if acc.Stream is None:
        return ""
    stream = acc.Stream()
    with acc.stream(stream):
        return _present(default_stream_inside_another=acc.default_stream() != stream)


def _record_stream(acc: DeepSpeedAccelerator) -> Sign:
    if acc.Stream is None:
        return ""
    try:
        torch.ones(8, device=acc.device()).record_stream(acc.Stream())
    except Exception:
        return ""
    return "record_stream() records"


def _events(acc: DeepSpeedAccelerator) -> Sign:
    return _present(
        Event_of_torch_s_module=_module_has(acc, "Event"),
        Event=acc.Event is not None,
        no_host_timers=not acc.use_host_timers(),
    )


def _graphs(acc: DeepSpeedAccelerator) -> Sign:
    graph = acc.create_graph()
    with acc.capture_to_graph(graph):
        noticed = acc.is_current_stream_capturing()
    return _present(graph=graph is not None, capture=noticed)


def _torch_pins(acc: DeepSpeedAccelerator) -> bool:
    """Whether torch locks pages for this device; a synchronized one would gain nothing by it."""
    accelerators: Any = getattr(torch, "accelerator", None)  # torch 2.6
    current = None if accelerators is None else accelerators.current_accelerator()
    if current is None or current.type != acc.device().type or acc.is_synchronized_device():
        return False
    try:
        return torch.ones(8).pin_memory().is_pinned()
    except Exception:
        return False


def _pinned_memory(acc: DeepSpeedAccelerator) -> Sign:
    tensor = torch.ones(8)
    buffer = acc.pin_empty(8, dtype=torch.float32)
    ordinary = not acc.is_pinned(tensor)
    return _present(
        # Where all host memory counts as pinned, none is locked for the device.
        pinned_copy=ordinary and acc.is_pinned(acc.pin_memory(tensor)),
        pinned_buffer=ordinary and acc.is_pinned(buffer),
        pinned_pages=ordinary and acc.is_pinned(acc.pin_memory(tensor, align_bytes=0)),
        pinned_by_torch=_torch_pins(acc),
        torch_pins_host_memory=getattr(acc, "torch_pins_host_memory", False),
    )


def _reserved_memory(acc: DeepSpeedAccelerator) -> Sign:
    acc.empty_cache()
    before = acc.memory_reserved()
    block = torch.full((_BLOCK,), 1, dtype=torch.uint8, device=acc.device(acc.current_device()))
    held = acc.memory_reserved()
    del block
    acc.empty_cache()
    return _present(reserved_rises_and_falls=held - before >= _SEEN and held - acc.memory_reserved() >= _SEEN)


def _memory_peaks(acc: DeepSpeedAccelerator) -> Sign:
    acc.reset_peak_memory_stats()
    before = acc.max_memory_allocated()
    block = torch.full((_BLOCK,), 1, dtype=torch.uint8, device=acc.device(acc.current_device()))
    del block
    return _present(peak_that_nobody_asked_for=acc.max_memory_allocated() - before >= _SEEN)


def _type(name: str, dtype: torch.dtype) -> Callable[[DeepSpeedAccelerator], Sign]:
    def signs(acc: DeepSpeedAccelerator) -> Sign:
        return _present(answer=getattr(acc, name)(), listed=dtype in acc.supported_dtypes())

    return signs


def _triton(acc: DeepSpeedAccelerator) -> Sign:
    return _present(answer=acc.is_triton_supported(), preferred=acc.prefer_triton_grouped_mm())


#: Signs that a feature is there after all.
SIGNS: dict[Feature, Callable[[DeepSpeedAccelerator], Sign]] = {
    Feature.INDEXED_DEVICES: _indexed_devices,
    Feature.STREAMS: _streams,
    Feature.DEFAULT_STREAM: _default_stream,
    Feature.RECORD_STREAM: _record_stream,
    Feature.EVENTS: _events,
    Feature.GRAPHS: _graphs,
    Feature.PINNED_MEMORY: _pinned_memory,
    Feature.RESERVED_MEMORY: _reserved_memory,
    Feature.MEMORY_PEAKS: _memory_peaks,
    Feature.BF16: _type("is_bf16_supported", torch.bfloat16),
    Feature.FP16: _type("is_fp16_supported", torch.float16),
    Feature.FP64: _type("is_fp64_supported", torch.float64),
    Feature.TRITON: _triton,
}
