# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Traits: what is declared missing is shown to be missing, feature by feature, and hides nothing that works wrongly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_core.op_builder.names import ONE_DEVICE, UPSTREAM
from accel_core.vendor import Feature, Traits
from accel_testkit.suite import ops, results
from accel_testkit.suite.device_index import EXPLICIT, READERS, RESETS, call, indexed_methods, read, same
from accel_testkit.suite.expect import expect

pytestmark = pytest.mark.tier("device")

_BLOCK = 40 << 20
_SEEN = 30 << 20
Sign = str
#: The features whose absence other processes show: in test_imports.py, test_collectives.py and test_training.py.
ELSEWHERE = {
    Feature.UNTOUCHED_ENVIRONMENT: "imports.declared_change_is_made",
    Feature.UNTOUCHED_SETTINGS: "imports.declared_change_is_made",
    Feature.ZERO3_RANKS: "training.declared_failure_is_one",
    **dict.fromkeys(
        (
            Feature.ALL_REDUCE_MAX,
            Feature.ASYNCHRONOUS_ALL_REDUCE,
            Feature.BROADCAST,
            Feature.ALL_GATHER_INTO_TENSOR,
            Feature.REDUCE_SCATTER_TENSOR,
            Feature.ALL_TO_ALL_SINGLE,
            Feature.SEND_AND_RECEIVE,
            Feature.ALL_GATHER_OBJECT,
        ),
        "collectives.declared_operation_fails",
    ),
}


def _present(**signs: object) -> Sign:
    """Text of the signs that a feature is there; empty where there is none."""
    return ", ".join(name for name, sign in signs.items() if sign)


def _indexed_devices(acc: DeepSpeedAccelerator) -> Sign:
    places = {torch.empty(1, device=acc.device(index)).device for index in (0, 1)}
    return _present(
        device_keeps_an_index=acc.device(1) != acc.device() or acc.device(0) != acc.device(),
        device_name_keeps_an_index={acc.device_name(i) for i in (0, 1, None)} != {acc.device_name()},
        current_device_name_has_an_index=acc.current_device_name() != acc.device_name(),
        tensors_on_two_devices=len(places) > 1,
    )


def _streams(acc: DeepSpeedAccelerator) -> Sign:
    return _present(
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
    return _present(Event=acc.Event is not None, no_host_timers=not acc.use_host_timers())


def _graphs(acc: DeepSpeedAccelerator) -> Sign:
    graph = acc.create_graph()
    with acc.capture_to_graph(graph):
        noticed = acc.is_current_stream_capturing()
    return _present(graph=graph is not None, capture=noticed)


def _pinned_memory(acc: DeepSpeedAccelerator) -> Sign:
    tensor = torch.ones(8)
    buffer = acc.pin_empty(8, dtype=torch.float32)
    return _present(
        pinned_copy=acc.is_pinned(acc.pin_memory(tensor)),
        pinned_buffer=acc.is_pinned(buffer),
        pinned_pages=acc.is_pinned(acc.pin_memory(tensor, align_bytes=0)),
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


@pytest.mark.parametrize("feature", SIGNS, ids=str)
def test_declared_feature_is_missing(
    accelerator: DeepSpeedAccelerator, traits: Traits, feature: Feature
) -> None:
    """A feature that a trait declares missing shows no sign of being there; its checks are skipped for nothing else."""
    if feature not in traits:
        return
    found = SIGNS[feature](accelerator)
    expect(
        not found,
        f"the trait {feature} declares missing what is there",
        found=found,
        expected=f"no sign of it: {feature.sentence}",
        do="drop the trait, so that the suite checks the feature, or stop offering it",
    )


@pytest.mark.tier("host")
def test_traits_name_features_and_ops(
    accelerator: DeepSpeedAccelerator, traits: Traits, request: pytest.FixtureRequest
) -> None:
    """The key of a trait is a Feature or the class name of an op builder; another one declares nothing."""
    declared = {name: f"{trait.support.value}: {trait.reason}" for name, trait in traits.items()}
    request.node.user_properties.append((results.TRAITS, declared))
    known = {feature.value for feature in Feature} | {
        *UPSTREAM,
        *ONE_DEVICE,
        *ops.found_by_upstream(accelerator),
    }
    unknown = sorted(str(key) for key in traits if str(key) not in known)
    expect(
        not unknown,
        "traits name what no accelerator has",
        found=", ".join(unknown),
        expected="keys of accel_core.vendor.Feature, or class names of op builders",
        do="correct the keys in traits.py",
    )


@pytest.mark.tier("host")
def test_ops_declared_missing_are_missing(accelerator: DeepSpeedAccelerator, traits: Traits) -> None:
    """An op that a trait declares missing has a placeholder, which is not compatible."""
    names = [name for name in (*UPSTREAM, *ONE_DEVICE) if name in traits]
    there = [
        name
        for name in names
        if not ops.is_missing(builder := accelerator.create_op_builder(name)) or builder.is_compatible()
    ]
    expect(
        not there,
        "traits declare ops missing that are there",
        found=", ".join(there),
        expected="a NotImplementedBuilder for each",
        do="drop the trait of an op once it is in the table",
    )


@pytest.fixture
def one_device(accelerator: DeepSpeedAccelerator, traits: Traits) -> Iterator[bool]:
    """Whether indices are no devices here; the current device is the first one again afterwards."""
    accelerator.set_device(0)
    yield "indexed_devices" in traits
    accelerator.set_device(0)


_NAMES = [name for name in indexed_methods() if name not in ("device", "device_name", "set_device")]


@pytest.mark.parametrize("name", _NAMES)
def test_index_of_the_only_device_is_accepted(
    accelerator: DeepSpeedAccelerator, one_device: bool, name: str
) -> None:
    """Without indexed devices, a method takes the current index, and answers as it does without one."""
    if not one_device:
        return
    index = accelerator.current_device()
    if name not in READERS:
        call(accelerator, name, index)
        return
    found = [read(accelerator, name, index), read(accelerator, name, device_index=index)]
    wanted = read(accelerator, name, *([index] if name in EXPLICIT else []))
    noisy = "memory" in name
    expect(
        all(abs(value - wanted) < _SEEN if noisy else same(name, value, wanted) for value in found),
        f"{name}({index}) is not about the only device",
        found=f"{found!r:.300}",
        expected=f"{wanted!r:.300}, as without an index",
        do="take None and the current index alike",
    )


@pytest.mark.parametrize("name", _NAMES)
def test_index_of_no_device_is_dropped_or_refused(
    accelerator: DeepSpeedAccelerator, one_device: bool, name: str
) -> None:
    """Without indexed devices, another index raises or is ignored; it never changes what the answer is about."""
    if not one_device:
        return
    other = accelerator.current_device() + 1
    wanted = (
        read(accelerator, name, *([accelerator.current_device()] if name in EXPLICIT else []))
        if name in READERS
        else None
    )
    try:
        found = read(accelerator, name, other) if name in READERS else call(accelerator, name, other)
    except Exception:  # refused
        return
    noisy = "memory" in name and name not in RESETS
    alike = found == wanted if not noisy else abs(found - wanted) < _SEEN
    expect(
        alike,
        f"{name}({other}) is about something else than the only device",
        found=f"{found!r:.300}",
        expected=f"an exception, or {wanted!r:.300} as without an index",
        do="drop the index or raise InvalidDevice",
    )


def test_absent_streams_and_graphs_change_nothing(accelerator: DeepSpeedAccelerator, traits: Traits) -> None:
    """Where streams or graphs are missing, their contexts run the code inside, and let its exceptions through."""
    stream = accelerator.stream(None)
    capture = accelerator.capture_to_graph(None) if "graphs" in traits else nullcontext()
    caught = []
    for context in (stream, capture):
        try:
            with context:
                result: Any = torch.ones(2, device=accelerator.device()) + 1
                raise KeyError("inside")
        except KeyError as error:
            caught.append((error.args[0], result.tolist()))
    expect(
        caught == [("inside", [2.0, 2.0])] * 2,
        "a context swallows what its code raises, or does not run it",
        found=repr(caught),
        expected="the exception, and the result of the code before it",
        do="return contextlib.nullcontext()",
    )
