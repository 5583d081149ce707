# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Traits: what is declared missing is shown to be missing, feature by feature, and hides nothing that works wrongly."""

from __future__ import annotations

from collections.abc import Iterator
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
from accel_testkit.suite.trait_signs import SIGNS

pytestmark = pytest.mark.tier("device")

_SEEN = 30 << 20
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


def test_index_of_no_device_is_treated_alike(
    accelerator: DeepSpeedAccelerator, one_device: bool, traits: Traits
) -> None:
    """Without indexed devices, either every method drops another index, or every method refuses it."""
    if not one_device:
        return
    other = accelerator.current_device() + 1
    names = [name for name in _NAMES if "streams" not in traits or not name.endswith("_stream")]
    refusing = []
    for name in names:
        try:
            call(accelerator, name, other)
        except Exception:
            refusing.append(name)
    dropping = [name for name in names if name not in refusing]
    expect(
        not refusing or not dropping,
        "some methods refuse the index of no device, and some drop it",
        found=f"{', '.join(dropping)} take index {other}; {', '.join(refusing)} do not",
        expected="one of the two for all of them: callers pass the same index to each",
        do="derive from accel_core.OneDeviceAccelerator, which refuses it everywhere",
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
