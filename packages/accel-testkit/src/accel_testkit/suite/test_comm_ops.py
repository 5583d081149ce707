# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Communication ops: what DeepSpeed's class for the backend ccl calls, on two ranks, where a vendor has the op."""

from __future__ import annotations

from typing import Any

import pytest

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite import ops
from accel_testkit.suite.expect import expect
from accel_testkit.suite.holds import Holds
from accel_testkit.suite.launch import Launcher

pytestmark = pytest.mark.tier("multi")

Answers = list[dict[str, Any]]
#: What rank 0 and rank 1 hold after each call, which starts from [1, 2] and [10, 20].
_RESULTS: dict[str, list[list[float]]] = {
    "sum": [[11.0, 22.0]] * 2,
    "most": [[10.0, 20.0]] * 2,
    "product": [[10.0, 40.0]] * 2,
    "alone": [[1.0, 2.0], [10.0, 20.0]],
    "cached": [[1.0, 2.0]] * 2,
    "inference": [[11.0, 22.0]] * 2,
    "from the last": [[10.0, 20.0]] * 2,
    "from the first": [[1.0, 2.0]] * 2,
    "from itself": [[1.0, 2.0], [10.0, 20.0]],
}
#: Functions of the op that DeepSpeed calls in place of torch.distributed's, if the op names them.
_COLLECTIVES = ["all_reduce", "all_reduce_caching", "barrier", "broadcast", "inference_all_reduce"]


_BUILDERS = ("CCLCommBuilder", "ShareMemCommBuilder")


@pytest.fixture(scope="module")
def answers(accelerator: DeepSpeedAccelerator, launcher: Launcher) -> Answers | None:
    """What each of two ranks found; see accel_testkit.suite.rank.comm_ops. None where the vendor has no such op."""
    if all(ops.is_missing(accelerator.create_op_builder(name)) for name in _BUILDERS):
        return None
    return launcher.run("comm_ops", ranks=2)


def test_groups_reduce_among_their_ranks(answers: Answers | None) -> None:
    """Each function of `deepspeed_ccl_comm` leaves the right numbers in a group of all ranks and of one."""
    if answers is None or not any("results" in answer or "error" in answer for answer in answers):
        return
    holds = Holds()
    for name, wanted in _RESULTS.items():
        found = [answer.get("results", {}).get(name) for answer in answers]
        holds[f"{name}: {found}, wanted {wanted}"] = found == wanted
    holds["other groups are refused"] = all(answer.get("others") for answer in answers)
    errors = "; ".join(str(answer["error"]) for answer in answers if answer.get("error"))
    expect(
        not errors, "a rank failed", found=errors, expected="no exception", do="look at CCLCommBuilder's op"
    )
    holds.expect("deepspeed_ccl_comm", "map each group of ranks to the process group that was made for it")


def test_ranks_know_their_place(answers: Answers | None) -> None:
    """`get_rank` and `get_world_size` are torch.distributed's; the op names its collectives, and gives addresses."""
    if answers is None or not any("results" in answer or "error" in answer for answer in answers):
        return
    holds = Holds()
    for rank, answer in enumerate(answers):
        holds[f"rank {rank}: its place {answer.get('place')}"] = answer.get("place") == [rank, 2] * 2
        holds[f"rank {rank}: addresses are numbers"] = answer.get("addresses") == [True, True]
        named = answer.get("collectives")
        holds[f"rank {rank}: collectives {named}"] = named == _COLLECTIVES
    holds.expect(
        "deepspeed_ccl_comm", "name what the op has in get_available_coll(), and ask torch.distributed"
    )


def test_shared_memory_adds_up(answers: Answers | None) -> None:
    """`deepspeed_shm_comm` sums over the ranks, into a new tensor and in place; at level 1 there is the operator."""
    for rank, answer in enumerate(answers or ()):
        found: dict[str, Any] = answer.get("shared memory") or {}
        if not found and not answer.get("error"):
            continue  # the vendor has no such op
        mine = [1.0 * 10**rank, 2.0 * 10**rank]
        wanted = [[11.0, 22.0], mine, [11.0, 22.0], True]
        right = found and all(found[dtype] == wanted for dtype in ("torch.float32", "torch.bfloat16"))
        expect(
            right and type(found["level"]) is int and (found["level"] == 0 or found["operator"]),
            "deepspeed_shm_comm does not add up",
            found=f"rank {rank}: {found}; {answer.get('error', '')}",
            expected=f"for each type {wanted}: the sum, the input as before, the sum in place, the tensor itself",
            do="reduce over all ranks, and return 0 from vector_kernel_level() without the operator",
        )
