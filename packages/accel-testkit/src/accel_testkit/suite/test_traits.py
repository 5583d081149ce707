# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Traits: what is declared missing is shown to be missing, by signs in the accelerator's answers and in torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_core.op_builder.names import ONE_DEVICE, UPSTREAM
from accel_core.vendor import Feature, Support, Trait, Traits
from accel_testkit.suite import op_builders, results
from accel_testkit.suite.expect import Holds

pytestmark = pytest.mark.tier("device")

_BLOCK = 40 << 20
_SEEN = 30 << 20
#: Signs that a feature is there, by what they are.
Signs = dict[str, object]


def _indexed_devices(acc: DeepSpeedAccelerator) -> Signs:
    places = {torch.empty(1, device=acc.device(index)).device for index in (0, 1)}
    return {
        "device() keeps an index": {acc.device(0), acc.device(1)} != {acc.device()},
        "device_name() keeps an index": {acc.device_name(i) for i in (0, 1, None)} != {acc.device_name()},
        "tensors are on two devices": len(places) > 1,
    }


def _visible_devices(acc: DeepSpeedAccelerator) -> Signs:
    return {f"{name} restricts a process": True for name in acc.visible_devices_envs()}


def _module_has(acc: DeepSpeedAccelerator, name: str) -> bool:
    """True if torch's module of the type has it; torch.cpu's streams and events queue and time nothing."""
    type_name = acc.device().type
    return type_name != "cpu" and hasattr(getattr(torch, type_name, None), name)


def _streams(acc: DeepSpeedAccelerator) -> Signs:
    return {
        "torch's module has Stream": _module_has(acc, "Stream"),
        "Stream is not None": acc.Stream is not None,
        "current_stream() is not None": acc.current_stream() is not None,
        "default_stream() is not None": acc.default_stream() is not None,
        "work is queued": not acc.is_synchronized_device(),
    }


def _default_stream(acc: DeepSpeedAccelerator) -> Signs:
    if acc.Stream is None:
        return {}
    stream = acc.Stream()
    with acc.stream(stream):
        return {"the default stream is another one than a chosen one": acc.default_stream() != stream}


def _record_stream(acc: DeepSpeedAccelerator) -> Signs:
    try:
        torch.ones(8, device=acc.device()).record_stream(acc.Stream())
    except Exception:  # also without a Stream
        return {}
    return {"record_stream() records": True}


def _events(acc: DeepSpeedAccelerator) -> Signs:
    return {
        "torch's module has Event": _module_has(acc, "Event"),
        "Event is not None": acc.Event is not None,
        "use_host_timers() is False": not acc.use_host_timers(),
    }


def _graphs(acc: DeepSpeedAccelerator) -> Signs:
    graph = acc.create_graph()
    with acc.capture_to_graph(graph):
        noticed = acc.is_current_stream_capturing()
    return {"create_graph() is not None": graph is not None, "a capture is noticed": noticed}


def _torch_pins(acc: DeepSpeedAccelerator) -> bool:
    """True if torch locks pages for this device; a synchronized one would gain nothing by it."""
    current = torch.accelerator.current_accelerator()
    if current is None or current.type != acc.device().type or acc.is_synchronized_device():
        return False
    try:
        return torch.ones(8).pin_memory().is_pinned()
    except Exception:
        return False


def _pinned_memory(acc: DeepSpeedAccelerator) -> Signs:
    tensor = torch.ones(8)
    # Where all host memory counts as pinned, none is locked for the device.
    ordinary = not acc.is_pinned(tensor)
    pinned = (
        acc.pin_memory(tensor),
        acc.pin_empty(8, dtype=torch.float32),
        acc.pin_memory(tensor, align_bytes=0),
    )
    return {
        "what is locked is pinned": ordinary and any(map(acc.is_pinned, pinned)),
        "torch pins for this device": _torch_pins(acc),
        "torch_pins_host_memory is True": getattr(acc, "torch_pins_host_memory", False),
    }


def _reserved_memory(acc: DeepSpeedAccelerator) -> Signs:
    acc.empty_cache()
    before = acc.memory_reserved()
    block = torch.full((_BLOCK,), 1, dtype=torch.uint8, device=acc.device(acc.current_device()))
    held = acc.memory_reserved()
    del block
    acc.empty_cache()
    after = acc.memory_reserved()
    return {"memory_reserved() rises and falls": held - before >= _SEEN and held - after >= _SEEN}


def _memory_peaks(acc: DeepSpeedAccelerator) -> Signs:
    acc.reset_peak_memory_stats()
    before = acc.max_memory_allocated()
    torch.full((_BLOCK,), 1, dtype=torch.uint8, device=acc.device(acc.current_device()))
    return {"there is a peak that nobody asked for": acc.max_memory_allocated() - before >= _SEEN}


def _type(name: str, dtype: torch.dtype) -> Callable[[DeepSpeedAccelerator], Signs]:
    question = f"is_{name}_supported"
    return lambda acc: {
        f"{question}() is True": getattr(acc, question)(),
        "supported_dtypes() lists it": dtype in acc.supported_dtypes(),
    }


def _triton(acc: DeepSpeedAccelerator) -> Signs:
    return {"it is supported": acc.is_triton_supported(), "it is preferred": acc.prefer_triton_grouped_mm()}


SIGNS: dict[Feature, Callable[[DeepSpeedAccelerator], Signs]] = {
    Feature.INDEXED_DEVICES: _indexed_devices,
    Feature.VISIBLE_DEVICES: _visible_devices,
    Feature.STREAMS: _streams,
    Feature.DEFAULT_STREAM: _default_stream,
    Feature.RECORD_STREAM: _record_stream,
    Feature.EVENTS: _events,
    Feature.GRAPHS: _graphs,
    Feature.PINNED_MEMORY: _pinned_memory,
    Feature.RESERVED_MEMORY: _reserved_memory,
    Feature.MEMORY_PEAKS: _memory_peaks,
    Feature.BF16: _type("bf16", torch.bfloat16),
    Feature.FP16: _type("fp16", torch.float16),
    Feature.FP64: _type("fp64", torch.float64),
    Feature.TRITON: _triton,
}
#: The checks of features whose absence other processes show.
ELSEWHERE = {
    Feature.UNTOUCHED_ENVIRONMENT: "package.declared_change_is_made",
    Feature.UNTOUCHED_SETTINGS: "package.declared_change_is_made",
    Feature.ZERO3_RANKS: "training.declared_failure_is_one",
    **dict.fromkeys(
        (
            Feature.ALL_REDUCE_MAX, Feature.ASYNCHRONOUS_ALL_REDUCE, Feature.BROADCAST, Feature.ALL_GATHER_INTO_TENSOR,
            Feature.REDUCE_SCATTER_TENSOR, Feature.ALL_TO_ALL_SINGLE, Feature.SEND_AND_RECEIVE,
            Feature.ALL_GATHER_OBJECT,
        ),
        "collectives.declared_operation_fails",
    ),
}  # fmt: skip


@pytest.mark.parametrize("feature", SIGNS, ids=str)
def test_declared_feature_is_missing(
    accelerator: DeepSpeedAccelerator, traits: Traits, feature: Feature
) -> None:
    """A feature that a trait declares missing shows no sign of being there; its checks are skipped for nothing else."""
    if feature not in traits:
        pytest.skip(f"{feature} is not declared missing")
    found = [sign for sign, there in SIGNS[feature](accelerator).items() if there]
    holds = Holds({f"no sign of {feature.sentence!r}, found {', '.join(found)}": not found})
    do = "drop the trait, so that the suite checks the feature, or stop offering it"
    holds.expect(f"the trait {feature}, which declares missing what is there,", do)


@pytest.mark.tier("host")
def test_traits_name_features_and_ops(
    accelerator: DeepSpeedAccelerator, traits: Traits, request: pytest.FixtureRequest
) -> None:
    """The key of a trait is a Feature or the class name of an op builder, which then is a placeholder.

    Another key declares nothing. A trait is a Trait with a sentence why: users, skips and docs print it.
    """
    declared = {name: f"{trait.support.value}: {trait.reason}" for name, trait in traits.items()}
    request.node.user_properties.append((results.TRAITS, declared))
    builders = {*UPSTREAM, *ONE_DEVICE, *op_builders.found_by_upstream(accelerator)}
    known = {feature.value for feature in Feature} | builders
    holds = Holds({f"{key} is a Feature or an op builder": str(key) in known for key in traits})
    for name, trait in traits.items():
        whole = isinstance(trait, Trait) and isinstance(trait.support, Support)
        holds[f"{name} has a sentence: {trait}"] = whole and len(trait.reason.split()) > 1
    for name in builders & traits.keys():
        builder = accelerator.create_op_builder(name)
        holds[f"the op of {name} is missing"] = (
            op_builders.is_missing(builder) and not builder.is_compatible()
        )
    holds.expect(
        "a trait",
        "write Trait(Support, sentence) by such a key in traits.py; drop the trait of an op once it is in the table",
    )
