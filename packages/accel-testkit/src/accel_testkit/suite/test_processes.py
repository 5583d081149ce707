# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fresh processes: with all devices, one, none, one that does not exist; before the first use nothing is opened."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import pytest

from accel_core.errors import AccelError
from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor import Traits
from accel_testkit.suite.expect import Holds, expect, expect_equal
from accel_testkit.suite.fresh_process import BLOCK
from accel_testkit.suite.launch import fresh_processes
from accel_testkit.suite.target import Target, records

pytestmark = pytest.mark.tier("multi")

Answers = dict[str, dict[str, Any]]
#: What the process sees -> the ids that the launcher writes.
_VISIBLE = {"one": [1], "none": [], "absent": [99], "turned round": [1, 0]}
#: Ranks of nodes with unequal numbers of them -> RANK and LOCAL_RANK, so that neither follows from the other.
_RANKS = {"local rank 0": (3, 0), "local rank 1": (2, 1)}
_FIRST_USES = [
    pytest.param(name, marks=pytest.mark.tier("multi" if name == "local rank 1" else "device"))
    for name in ("all", *_RANKS)
]


def _answers(
    target: Target, environments: Mapping[str, Mapping[str, str]], factory: pytest.TempPathFactory
) -> Answers:
    arguments = [target.accelerator, *(records(target.vendor) if target.vendor else ())]
    return fresh_processes("devices", arguments, environments, factory.mktemp("fresh"))


@pytest.fixture(scope="module")
def seen(
    target: Target, tmp_path_factory: pytest.TempPathFactory, run_environment: dict[str, str]
) -> Answers:
    """The answers of processes that see all devices; see `devices` of accel_testkit.suite.fresh_process."""
    environments = {"all": run_environment}
    for name, (rank, local) in _RANKS.items():
        variables = {"RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": 4, "CROSS_RANK": 1, "CROSS_SIZE": 2}
        variables |= {"LOCAL_SIZE": local + 1, "LOCAL_WORLD_SIZE": local + 1}
        environments[name] = {**run_environment, **{key: str(value) for key, value in variables.items()}}
    return _answers(target, environments, tmp_path_factory)


@pytest.fixture(scope="module")
def limited(
    seen: Answers,
    target: Target,
    accelerator: DeepSpeedAccelerator,
    traits: Traits,
    tmp_path_factory: pytest.TempPathFactory,
    run_environment: dict[str, str],
) -> Answers:
    """Their answers, and those of processes with one device, none, a missing one, and two in another order."""
    environments = {}
    for name, ids in _VISIBLE.items() if not {"indexed_devices", "visible_devices"} & {*traits} else ():
        environment = dict(run_environment)
        # A runtime may lack an order, and no other list.
        with contextlib.suppress(*((AccelError,) if name == "turned round" else ())):
            accelerator.set_visible_devices_envs(environment, ids)
            environments[name] = environment
    return {**seen, **_answers(target, environments, tmp_path_factory)}


def _answer(answers: Answers, name: str) -> dict[str, Any]:
    if name not in answers:
        pytest.skip("set_visible_devices_envs() raises for this order")
    answer = answers[name]
    expect(
        "error" not in answer,
        f"a fresh process with {name} of the devices fails",
        found=answer.get("error", ""),
        expected="an accelerator that can be constructed, and that counts its devices: login nodes have none",
        do="ask the runtime for a device only where one is used",
    )
    return answer


@pytest.mark.tier("device")
def test_nothing_is_opened_before_the_first_use(seen: Answers) -> None:
    """After constructor, `is_available` and `device_count` a forked process can use the device: no context is open."""
    found = _answer(seen, "all")["forked"]
    what = (
        "what the first use raises in a process forked after constructor, is_available() and device_count()"
    )
    do = "open no context for the number of devices: data loaders and launchers fork"
    expect_equal(what, found[:500], "", do)


@pytest.mark.parametrize("name", _FIRST_USES)
def test_lazy_calls_come_with_the_first_use(seen: Answers, traits: Traits, name: str) -> None:
    """A call given to `lazy_call` before the first use is made once the device is used, in order, and can use it.

    A rank is on the device that it sets before any other use, or on device 0, and never on that of RANK. What
    `available_memory()` returns and what tensors hold are at most `total_memory()`. `current_stream(i)` and
    `default_stream(i)` return a stream of a device that the process has not used yet.
    """
    answers, (rank, local), holds = _answer(seen, name), _RANKS.get(name, (0, 0)), Holds()
    # The second one restores a random state.
    holds.equal("what lazy_call() was given and is called", answers["lazy"], ["first", "second", "third"])
    # A type without indices may keep the index or drop it.
    wanted = {0, local} if "indexed_devices" in traits else {local}
    holds[f"current_device() {answers['current']} is one of {wanted}"] = answers["current"] in wanted
    holds[f"tensors are on device {local}"] = answers["placed"]
    for held, (available, total) in enumerate(answers["left"], 1):
        what = f"{available} bytes available of {total}, with {held} tensors of {BLOCK}"
        holds[what] = available + BLOCK * held <= total
    if not {"streams", "indexed_devices"} & {*traits}:
        faults = answers["streams"]
        holds.equal("what the streams of each device raise", faults, [""] * len(faults))
    what = (
        f"the first use with RANK={rank} and LOCAL_RANK={local}, after set_device({local}) if that is not 0,"
    )
    do = "queue calls until the runtime is initialized; pass what set_device() is given on; ask mem_get_info"
    holds.expect(what, do)


@pytest.mark.needs("indexed_devices", "visible_devices")
@pytest.mark.parametrize("name", _VISIBLE)
def test_process_has_the_devices_that_it_is_shown(limited: Answers, name: str) -> None:
    """A process has the devices of its variable: the second one alone, under index 0, both in another order, or none.

    Without one an accelerator is not available. A runtime that takes an empty text for an unset variable shows all.
    """
    answers, holds = _answer(limited, name), Holds()
    count = {"one": 1, "turned round": 2}.get(name, answers["count"])
    holds.equal("device_count()", answers["count"], count)
    holds.equal("devices that compute", answers["computing"], count)
    holds.equal("is_available()", answers["available"], count > 0)
    do = "name the variable that the runtime reads in visible_devices_envs(); count what is visible, at each call"
    holds.expect(f"a process that is shown {_VISIBLE[name]}", do)


@pytest.mark.record
@pytest.mark.needs("indexed_devices")
@pytest.mark.parametrize(
    "name", ["all", *(pytest.param(n, marks=pytest.mark.needs("visible_devices")) for n in _VISIBLE)]
)
def test_probe_counts_what_the_process_has(limited: Answers, name: str) -> None:
    """`evidence()` finds the runtime, and `confirm()` counts the devices of its own process, also none."""
    answers, holds = _answer(limited, name), Holds()
    holds.equal("the count of confirm()", set(answers["confirmed"]), {answers["count"]})
    holds[f"a runtime is found: {answers['runtime']}"] = all(answers["runtime"])
    holds[f"there are reasons: {answers['reasons']}"] = all(answers["reasons"])
    do = "ask the runtime as device_count() does; none is not an error"
    holds.expect(f"the probe with {name} of the devices", do)
