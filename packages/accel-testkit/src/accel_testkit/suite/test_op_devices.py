# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op devices: an op computes where its tensors are, in the current stream; device, stream and settings stay."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite import needs
from accel_testkit.suite.expect import Holds
from accel_testkit.suite.fresh_process import torch_settings
from accel_testkit.suite.ops import SPECS, of_builder
from accel_testkit.suite.ops.calls import copies, problem, tensors_in
from accel_testkit.suite.ops.spec import OpSpec
from accel_testkit.suite.test_asynchrony import Witness, late_copies

pytestmark = pytest.mark.tier("multi")

_devices = pytest.mark.needs("indexed_devices")
_OPS = needs.ops(dict.fromkeys(spec.builder for spec in SPECS if not spec.host))


@_devices
@pytest.mark.parametrize("name", _OPS)
def test_op_computes_where_its_tensors_are(accelerator: DeepSpeedAccelerator, second: int, name: str) -> None:
    """An op gives the same numbers on each device, whichever is current, and its results are on that device.

    Loading and calling it leave the current device and the current streams of all devices as they were.
    """
    holds = Holds()
    for current, index in ((0, 0), (second, second), (0, second), (second, 0)):
        accelerator.set_device(current)
        case = f"device {current} current, tensors on {index}"
        with accelerator.stream(accelerator.Stream and accelerator.Stream()):
            before = _state(accelerator, second)
            op = accelerator.create_op_builder(name).load()
            holds.equal(f"device and streams after load(), {case}", _state(accelerator, second), before)
            found = problem(name, op, torch.device(accelerator.device(index)))
            holds[f"{case}: {found}"] = not found
            holds.equal(f"device and streams after the call, {case}", _state(accelerator, second), before)
    do = "take device and buffers from the tensors; choose both with contexts, which restore the former ones"
    holds.expect(name, do)


def _state(accelerator: DeepSpeedAccelerator, second: int) -> tuple[Any, ...]:
    return accelerator.current_device(), *(accelerator.current_stream(index) for index in (0, second))


@pytest.mark.tier("device")
@pytest.mark.needs("streams", "pinned_memory")
@pytest.mark.parametrize("name", _OPS)
def test_call_is_in_the_current_stream(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """A call comes after the work before it in the current stream, such as a copy of gradients."""
    op, holds = accelerator.create_op_builder(name).load(), Holds()
    place = torch.device(accelerator.device(accelerator.current_device()))
    for spec in of_builder(name):
        if not spec.random:
            pair = (_after_a_copy(accelerator, spec, op, place, late) for late in (False, True))
            holds[f"{spec.name} comes after a copy in the stream"] = all(map(torch.allclose, *pair))
    accelerator.set_device(place.index or 0)  # whatever the op does; see the check before
    holds.expect(name, "launch it in the current stream of the tensors' device")


def _after_a_copy(
    accelerator: DeepSpeedAccelerator, spec: OpSpec, op: Any, place: torch.device, late: bool
) -> list[torch.Tensor]:
    """Return the results of a call in a new stream, behind a copy of its first tensor from the host."""
    arguments = copies(spec.first(torch.float32).placed(place, torch.float32))
    first, stream = tensors_in(arguments)[0], accelerator.Stream()
    source = accelerator.pin_memory(first.cpu())
    first.zero_()
    accelerator.synchronize()
    with late_copies(), accelerator.stream(stream):
        if late:
            Witness(accelerator).write()  # so that the stream is late
        first.copy_(source, non_blocking=late)
        found = spec.call(op, torch.float32, arguments)
        stream.synchronize()
    return [each.cpu() for each in found]


@pytest.fixture
def _threads() -> Iterator[None]:
    """Another number of threads than an op would choose."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def _settings(accelerator: DeepSpeedAccelerator) -> dict[str, Any]:
    return {
        **torch_settings(),
        "inference mode": torch.is_inference_mode_enabled(),
        "subnormal numbers": float(torch.tensor(1e-39) * 1),
        "torch's random state": hash(tuple(torch.get_rng_state().tolist())),
        "Python's random state": hash(random.getstate()),
        "the device's random state": hash(tuple(accelerator.get_rng_state().tolist())),
        "filters of warnings": len(warnings.filters),
        "the folder": os.getcwd(),
    }


@pytest.mark.tier("device")
@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("name", needs.ops(dict.fromkeys(spec.builder for spec in SPECS)))
def test_op_leaves_settings(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """Threads, default type, gradient mode, random states and the like are after an op's use what they were before."""
    for spec in of_builder(name):
        spec.first(torch.float32)  # the reference may import what adds filters of warnings
    holds, before = Holds(), _settings(accelerator)
    op = accelerator.create_op_builder(name).load()
    for when in ("load()", "the first call", "the second call"):
        if when != "load()":
            problem(name, op, torch.device(accelerator.device(accelerator.current_device())))
        after = _settings(accelerator)
        for what, setting in before.items():
            holds.equal(f"{what} after {when}", after[what], setting)
        before = after
    holds.expect(name, "set what a kernel needs in a context that restores it, and draw no random numbers")
