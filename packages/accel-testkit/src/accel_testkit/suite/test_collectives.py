# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Collectives: two ranks on two devices, with the vendor's backend."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor import Traits
from accel_testkit.suite.expect import expect, expect_type
from accel_testkit.suite.launch import Launcher
from accel_testkit.suite.rank.host_operations import OPERATIONS

pytestmark = pytest.mark.tier("multi")

Answers = list[dict[str, Any]]
_TYPES = ["float32", "bfloat16", "float16", "int64"]
#: What rank 0 and rank 1 hold after each operation, which starts from [1, 2] and [10, 20].
_OUTCOMES: dict[str, list[Any]] = {
    "all_reduce_max": [[10.0, 20.0]] * 2,
    "asynchronous_all_reduce": [[11.0, 22.0]] * 2,
    "broadcast": [[10.0, 20.0]] * 2,
    "all_gather_into_tensor": [[1.0, 2.0, 10.0, 20.0]] * 2,
    "reduce_scatter_tensor": [[11.0], [22.0]],
    "all_to_all_single": [[1.0, 10.0], [2.0, 20.0]],
    "send_and_receive": [[10.0, 20.0], [10.0, 20.0]],
    "all_gather_object": [["rank 0", "rank 1"]] * 2,
}


@pytest.fixture(scope="module")
def answers(launcher: Launcher) -> Answers:
    """What each of two ranks found; see accel_testkit.suite.rank.collectives."""
    return launcher.run("collectives", ranks=2)


@pytest.mark.tier("host")
def test_backend_has_a_name(accelerator: DeepSpeedAccelerator) -> None:
    """`communication_backend_name()` is a name for torch.distributed."""
    name = accelerator.communication_backend_name()
    expect_type(name, str, "communication_backend_name()", do='return a name such as "hccl"')
    expect(name, "the backend has no name", found="''", expected="a name", do='return a name such as "hccl"')


@pytest.mark.tier("device")
def test_backend_is_registered(accelerator: DeepSpeedAccelerator) -> None:
    """torch.distributed has the backend, once the accelerator is constructed."""
    name = accelerator.communication_backend_name()
    expect(
        torch.distributed.is_backend_available(name) and name in torch.distributed.Backend.backend_list,
        "torch.distributed does not have the backend",
        found=repr(name),
        expected=f"one of {', '.join(torch.distributed.Backend.backend_list)}",
        do="import the module that registers it, or correct the name",
    )


def test_ranks_join_on_their_devices(answers: Answers, traits: Traits) -> None:
    """Two ranks form a group, each on the device of its local rank, or on the one that torch knows."""
    found = [(answer.get("world"), answer.get("device")) for answer in answers]
    wanted = [[(2, 0), (2, 1)], *([[(2, 0), (2, 0)]] if "indexed_devices" in traits else [])]
    expect(
        found in wanted,
        "two ranks do not form a group",
        found=f"(size, device) {found}{_errors(answers)}",
        expected=" or ".join(map(str, wanted)),
        do="make set_device() and the backend work in a fresh process",
    )


@pytest.mark.parametrize("dtype", _TYPES)
def test_all_reduce_sums(answers: Answers, dtype: str) -> None:
    """all_reduce leaves the sum over the ranks on each of them, in each type that gradients have."""
    _expect_outcome(answers, f"all_reduce_{dtype}", [[11, 22]] * 2)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.needs(n)) for n in _OUTCOMES])
def test_operation_moves_data(answers: Answers, name: str) -> None:
    """Each operation that DeepSpeed uses leaves the right numbers on each rank."""
    _expect_outcome(answers, name, _OUTCOMES[name])


@pytest.mark.parametrize("name", _OUTCOMES)
def test_declared_operation_fails(answers: Answers, traits: Traits, name: str) -> None:
    """An operation that a trait declares missing does not leave the right numbers: it raises, or moves nothing."""
    found = [answer.get(name) for answer in answers]
    expect(
        name not in traits or found != _OUTCOMES[name],
        f"the trait {name} declares missing what works",
        found=repr(found),
        expected="an exception or other numbers, or no such trait",
        do="drop the trait, so that the suite checks the operation",
    )


@pytest.mark.parametrize("name", OPERATIONS)
def test_gloo_takes_device_tensors(answers: Answers, name: str) -> None:
    """Where the backend is gloo, an operation that it has leaves the same on device tensors as on the host's."""
    host, device = (
        [answer.get(f"{name} on the {where}") for answer in answers] for where in ("host", "device")
    )
    lacks = all(isinstance(outcome, str) for outcome in host)
    expect(
        lacks or device == host,
        f"{name} of gloo leaves other data on the device",
        found=f"{device}{_errors(answers)}",
        expected=f"{host} on ranks 0 and 1, as with tensors of the host",
        do="copy to the host and back where torch's gloo does not take the device's tensors",
    )


def test_barrier_holds_back(answers: Answers) -> None:
    """No rank leaves a barrier before the last one has entered it."""
    entered = [answer.get("barrier", {}).get("entered", 0.0) for answer in answers]
    left = [answer.get("barrier", {}).get("left", -1.0) for answer in answers]
    expect(
        min(left) >= max(entered) > 0,
        "a barrier does not hold a rank back",
        found=f"entered at {entered}, left at {left} (s){_errors(answers)}",
        expected="every rank to leave after the last one entered",
        do="make barrier() wait for all ranks",
    )


def _expect_outcome(answers: Answers, name: str, wanted: list[Any]) -> None:
    found = [answer.get(name) for answer in answers]
    expect(
        found == wanted,
        f"{name} leaves wrong data",
        found=f"{found}{_errors(answers)}",
        expected=f"{wanted} on ranks 0 and 1",
        do="look at the backend; declare a trait of that name where it has no such operation",
    )


def _errors(answers: Answers) -> str:
    texts = [f"rank {rank}: {answer['error']}" for rank, answer in enumerate(answers) if answer.get("error")]
    return "".join(f"; {text}" for text in texts)
