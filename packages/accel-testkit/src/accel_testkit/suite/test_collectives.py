# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Collectives: two ranks on two devices, with the vendor's backend."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor import Traits
from accel_testkit.suite.expect import Holds, expect_equal
from accel_testkit.suite.launch import RankLauncher
from accel_testkit.suite.rank.collectives import OF_GLOO

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
    "all_reduce of a device mesh": [[11.0, 22.0]] * 2,
}
_LOOK = "look at the backend; declare a trait of that name where it has no such operation"


@pytest.fixture(scope="module")
def answers(launcher: RankLauncher) -> Answers:
    """The results of each of two ranks; see accel_testkit.suite.rank.collectives."""
    return launcher.run("collectives", ranks=2)


def _both(answers: Answers, name: str) -> list[Any]:
    """Return what both ranks hold, or their errors."""
    return [answer.get(name, answer.get("error")) for answer in answers]


@pytest.mark.tier("device")
def test_backend_is_registered(accelerator: DeepSpeedAccelerator) -> None:
    """torch.distributed has the backend `communication_backend_name()`, once the accelerator is constructed."""
    name, names = accelerator.communication_backend_name(), torch.distributed.Backend.backend_list
    there = name and torch.distributed.is_backend_available(name) and name in names
    holds = Holds({f"{name!r} is one of {', '.join(names)}": there})
    do = "import the module that registers it, or correct the name; without one, use accel_core.vendor.host_collectives"
    holds.expect("the backend", do)


def test_ranks_join_on_their_devices(answers: Answers, traits: Traits) -> None:
    """Two ranks form a group, each on the device of its local rank, or on the one that torch knows."""
    found, holds = list(zip(_both(answers, "world"), _both(answers, "device"), strict=True)), Holds()
    wanted = [[(2, 0), (2, 1)], *([[(2, 0), (2, 0)]] if "indexed_devices" in traits else [])]
    holds[f"size and device of each rank are one of {wanted}: {found}"] = found in wanted
    holds.expect("a group of two ranks", "make set_device() and the backend work in a fresh process")


@pytest.mark.parametrize("dtype", _TYPES)
def test_all_reduce_sums(answers: Answers, dtype: str) -> None:
    """all_reduce leaves the sum over the ranks on each of them, in each type that gradients have."""
    found = _both(answers, f"all_reduce_{dtype}")
    expect_equal(f"what ranks 0 and 1 hold after all_reduce of {dtype}", found, [[11, 22]] * 2, _LOOK)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.needs(n)) for n in _OUTCOMES])
def test_operation_moves_data(answers: Answers, name: str) -> None:
    """Each operation that DeepSpeed uses leaves the right numbers on each rank."""
    expect_equal(f"what ranks 0 and 1 hold after {name}", _both(answers, name), _OUTCOMES[name], _LOOK)


@pytest.mark.parametrize("name", _OUTCOMES)
def test_declared_operation_fails(answers: Answers, traits: Traits, name: str) -> None:
    """An operation that a trait declares missing does not leave the right numbers: it raises, or moves nothing."""
    found = _both(answers, name)
    holds = Holds({f"it raises, or leaves other numbers than {found}": found != _OUTCOMES[name]})
    if name in traits:
        holds.expect(f"{name}, which is declared missing,", "drop the trait, so that the suite checks it")


@pytest.mark.parametrize("name", OF_GLOO)
def test_gloo_takes_device_tensors(answers: Answers, name: str) -> None:
    """Where the backend is gloo, an operation that it has leaves the same on device tensors as on the host's."""
    host, device = (_both(answers, f"{name} on the {where}") for where in ("host", "device"))
    if not all(isinstance(outcome, str) for outcome in host):  # else gloo lacks it
        do = "copy to the host and back where torch's gloo does not take device tensors"
        expect_equal(f"what ranks 0 and 1 hold on the device after {name}", device, host, do)


def test_barrier_holds_back(answers: Answers) -> None:
    """No rank leaves a barrier before the last one has entered it."""
    entered = [answer.get("barrier", {}).get("entered", 0.0) for answer in answers]
    left = [answer.get("barrier", {}).get("left", -1.0) for answer in answers]
    what = (
        f"every rank leaves after the last one has entered: {entered}, {left} (s); {_both(answers, 'error')}"
    )
    Holds({what: min(left) >= max(entered) > 0}).expect("a barrier", "make barrier() wait for all ranks")
