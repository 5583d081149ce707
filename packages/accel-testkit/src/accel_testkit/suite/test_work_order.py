# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Work order: what a runtime that resolves data dependencies orders by itself, and the stream that a replay is in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect
from accel_testkit.suite.witness import Witness, late_copies

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("pinned_memory", "streams")]

_SIZE = 1 << 16
_VALUE = 7.0


@pytest.fixture(autouse=True)
def _late() -> Iterator[None]:
    with late_copies():
        yield


def _read_after_write(accelerator: DeepSpeedAccelerator, side: Any) -> bool:
    witness = Witness(accelerator)
    with accelerator.stream(side):
        witness.write()
    total = witness.device_tensor.sum()
    accelerator.synchronize()
    return witness.sum_was_right(total)


def _read_after_write_in_the_default_stream(accelerator: DeepSpeedAccelerator, side: Any) -> bool:
    witness = Witness(accelerator)
    witness.write()
    with accelerator.stream(side):
        total = witness.device_tensor.sum()
    accelerator.synchronize()
    return witness.sum_was_right(total)


def _write_after_read(accelerator: DeepSpeedAccelerator, side: Any) -> bool:
    witness = Witness(accelerator)
    with accelerator.stream(side):
        witness.read()
    witness.overwrite()
    accelerator.synchronize()
    return witness.has_arrived()


def _memory_used_again(accelerator: DeepSpeedAccelerator, side: Any) -> bool:
    place = accelerator.device(accelerator.current_device())
    source = accelerator.pin_memory(torch.full((_SIZE,), _VALUE))
    tensor = torch.zeros(_SIZE, device=place)
    with accelerator.stream(side):
        Witness(accelerator).write()  # so that the side stream is late
        tensor.copy_(source, non_blocking=True)
    del tensor
    following = torch.zeros(_SIZE, device=place)
    accelerator.synchronize()
    return bool((following == 0).all().item())


_DEPENDENCIES: dict[str, Callable[[DeepSpeedAccelerator, Any], bool]] = {
    "a read after a write": _read_after_write,
    "a read after a write in the default stream": _read_after_write_in_the_default_stream,
    "a write after a read": _write_after_read,
    "memory used again": _memory_used_again,
}


@pytest.mark.parametrize("dependency", _DEPENDENCIES)
def test_resolved_dependency_needs_no_wait(accelerator: DeepSpeedAccelerator, dependency: str) -> None:
    """If `resolves_data_dependency()` is True, work of two streams on the same data is ordered without a wait.

    DeepSpeed then calls neither `wait_stream` nor `record_stream`.
    """
    if not accelerator.resolves_data_dependency():
        return
    right = _DEPENDENCIES[dependency](accelerator, accelerator.Stream())
    expect(
        right,
        "resolves_data_dependency() is True, but work in two streams on the same data is not ordered",
        found=f"{dependency} in two streams, without a wait between them: wrong numbers",
        expected="False; True where the runtime orders such work by itself",
        do="return False: DeepSpeed then waits for its streams, and records them on its tensors",
    )


@pytest.mark.needs("graphs")
@pytest.mark.parametrize("chosen", [True, False], ids=["chosen stream", "default stream"])
def test_replay_is_in_the_current_stream(accelerator: DeepSpeedAccelerator, chosen: bool) -> None:
    """`replay_graph` runs in the stream that is current: after the work before it there, and before that after it."""
    witness = Witness(accelerator)
    doubled = witness.device_tensor * 2  # once outside, as runtimes ask for
    accelerator.synchronize()
    graph = accelerator.create_graph()
    with accelerator.capture_to_graph(graph):
        doubled = witness.device_tensor * 2
    accelerator.synchronize()
    stream = accelerator.Stream() if chosen else accelerator.default_stream()
    with accelerator.stream(stream):
        witness.write()
        accelerator.replay_graph(graph)
        total = doubled.sum()
    stream.synchronize()
    found = total.item() / 2
    expect(
        found == witness.device_tensor.sum().item() > 0,
        "replay_graph() does not run in the current stream",
        found=f"it was replayed on numbers whose sum was {found:g}, where the stream had written others before",
        expected="the work of the current stream in its order: a copy, the replay, a sum",
        do="replay without choosing a stream",
    )
