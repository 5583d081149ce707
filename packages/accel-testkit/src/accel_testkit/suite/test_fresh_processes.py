# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fresh processes: with all devices, one, none, one that does not exist; before the first use nothing is opened."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from accel_core.errors import AccelError
from accel_core.interface import DeepSpeedAccelerator
from accel_core.isolated import run_module
from accel_core.vendor import Traits
from accel_testkit.suite.expect import expect
from accel_testkit.suite.fresh_device import BLOCK
from accel_testkit.suite.target import Target, records

pytestmark = pytest.mark.tier("multi")

Answers = dict[str, dict[str, Any]]
#: Guards against a hang; nothing is measured.
_LIMIT = 300
#: What the process sees -> the ids that the launcher writes.
_VISIBLE = {"one": [1], "none": [], "absent": [99]}
#: Ranks of nodes with unequal numbers of them -> RANK and LOCAL_RANK, so that neither follows from the other.
_RANKS = {"local rank 0": (3, 0), "local rank 1": (2, 1)}


@pytest.fixture(scope="module")
def seen(
    target: Target, tmp_path_factory: pytest.TempPathFactory, run_environment: dict[str, str]
) -> Answers:
    """What processes that see all devices answer; see accel_testkit.suite.fresh_device."""
    environments = {"all": run_environment}
    for name, (rank, local) in _RANKS.items():
        variables = {"RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": 4, "CROSS_RANK": 1, "CROSS_SIZE": 2}
        sizes = {"LOCAL_SIZE": local + 1, "LOCAL_WORLD_SIZE": local + 1}
        written = {key: str(value) for key, value in {**variables, **sizes}.items()}
        environments[name] = {**run_environment, **written}
    return _answers(target, environments, tmp_path_factory.mktemp("fresh"))


@pytest.fixture(scope="module")
def limited(
    seen: Answers,
    target: Target,
    accelerator: DeepSpeedAccelerator,
    traits: Traits,
    tmp_path_factory: pytest.TempPathFactory,
    run_environment: dict[str, str],
) -> Answers:
    """What these answer, and processes that see one device, none, or one that does not exist."""
    environments = {}
    for name, ids in _VISIBLE.items() if "indexed_devices" not in traits else ():
        environments[name] = dict(run_environment)
        accelerator.set_visible_devices_envs(environments[name], ids)
    if "indexed_devices" not in traits:
        turned = dict(run_environment)
        with contextlib.suppress(AccelError):  # the runtime does not have this order
            accelerator.set_visible_devices_envs(turned, [1, 0])
            environments["turned round"] = turned
    return {**seen, **_answers(target, environments, tmp_path_factory.mktemp("limited"))}


def _answers(target: Target, environments: Mapping[str, Mapping[str, str]], folder: Path) -> Answers:
    """Run a process in each of the environments, all at once."""
    named = list(records(target.vendor)) if target.vendor else []
    started = {}
    for name, environment in environments.items():
        command = [*run_module("accel_testkit.suite.fresh_device"), str(folder / f"{name}.json")]
        with (folder / f"{name}.log").open("wb") as log:
            started[name] = subprocess.Popen(
                [*command, target.accelerator, *named], env=environment, stdout=log, stderr=subprocess.STDOUT
            )
    for process in started.values():
        try:
            process.wait(_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return {name: _read(folder, name) for name in started}


def _read(folder: Path, name: str) -> dict[str, Any]:
    path = folder / f"{name}.json"
    if not path.is_file():
        return {"error": (folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")[-2000:]}
    answers: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return answers


def _answer(seen: Answers, name: str) -> dict[str, Any]:
    answers = seen[name]
    expect(
        "error" not in answers,
        f"a fresh process with {name} of the devices fails",
        found=answers.get("error", ""),
        expected="an accelerator that can be constructed, and that counts its devices: login nodes have none",
        do="ask the runtime for a device only where one is used",
    )
    return answers


@pytest.mark.tier("device")
def test_nothing_is_opened_before_the_first_use(seen: Answers) -> None:
    """After constructor, `is_available` and `device_count` a forked process can use the device: no context is open."""
    found = _answer(seen, "all")["forked"]
    expect(
        not found,
        "constructor, is_available() or device_count() opens a context",
        found=f"in a process that was forked then, the first use raises {found:.500}",
        expected="no context before the first use: data loaders and launchers fork",
        do="ask only what needs no context: the number of devices",
    )


@pytest.mark.tier("device")
@pytest.mark.parametrize("name", ["all", *_RANKS])
def test_lazy_calls_come_with_the_first_use(seen: Answers, name: str) -> None:
    """What `lazy_call` is given before the first use is called once the device is used, in order, and can use it."""
    found = _answer(seen, name)["lazy"]
    expect(
        found == ["first", "second", "third"],
        "lazy_call() before the first use loses calls or their order",
        found=f"calls {found} after the first use",
        expected="first, second (which restores a random state) and third, once each, at once or with the first use",
        do="queue the call until the runtime is initialized, or initialize it; call at once only where that works",
    )


@pytest.mark.parametrize("name", _RANKS)
def test_rank_uses_the_device_of_its_local_rank(seen: Answers, traits: Traits, name: str) -> None:
    """A rank is on the device that it sets before any other use, or on device 0, and never on that of RANK."""
    answers, local = _answer(seen, name), _RANKS[name][1]
    # A type without indices may keep the index or drop it.
    wanted = {0, local} if "indexed_devices" in traits else {local}
    expect(
        answers["current"] in wanted and answers["placed"],
        "a rank of a second node is on another device than the one of its local rank",
        found=f"current_device() {answers['current']}, tensors on device {local}: {answers['placed']}, "
        f"with RANK={_RANKS[name][0]} and LOCAL_RANK={local}, after set_device({local}) if that is not 0",
        expected=f"device {local}",
        do="read LOCAL_RANK where a rank is needed at all, and pass what set_device() is given on to the runtime",
    )


@pytest.mark.tier("device")
@pytest.mark.parametrize("name", ["all", *_RANKS])
def test_memory_that_is_used_first_is_not_available(seen: Answers, name: str) -> None:
    """In a fresh process too, `available_memory()` and what tensors hold are at most `total_memory()`."""
    found = _answer(seen, name)["left"]
    expect(
        all(available + BLOCK * held <= total for held, (available, total) in enumerate(found, 1)),
        "available_memory() counts what the first tensors hold",
        found=f"{found} bytes available and in total, with one tensor of {BLOCK} and with two",
        expected="less by the tensors than the total",
        do="ask the runtime's mem_get_info at each call",
    )


@pytest.mark.needs("indexed_devices")
def test_one_visible_device_is_device_0(limited: Answers) -> None:
    """A process that is shown device 1 alone has one device, which computes under index 0, and no second one."""
    answers = _answer(limited, "one")
    found = {name: answers[name] for name in ("available", "count", "computing")}
    expect(
        found == {"available": True, "count": 1, "computing": 1},
        "a process that is shown one device does not have one",
        found=repr(found),
        expected="available, a count of 1, and 1 device that computes",
        do="name the variable that the runtime reads in visible_devices_envs(), and count what is visible",
    )


@pytest.mark.needs("indexed_devices")
def test_devices_are_shown_in_any_order_that_is_written(limited: Answers) -> None:
    """A process that is shown devices 1 and 0 has two, unless `set_visible_devices_envs` refuses this order."""
    if "turned round" not in limited:
        return  # it refuses
    answers = _answer(limited, "turned round")
    expect(
        (answers["count"], answers["computing"]) == (2, 2),
        "a process does not have the devices that it is shown",
        found=f"{answers['count']} devices, of which {answers['computing']} compute, after the ids [1, 0]",
        expected="2, or an AccelError of set_visible_devices_envs()",
        do="refuse what the runtime does not read: it may ignore ids in silence",
    )


@pytest.mark.needs("indexed_devices")
@pytest.mark.parametrize("name", ["none", "absent"])
def test_process_without_a_device_says_so(limited: Answers, name: str) -> None:
    """With none of the devices, or one that does not exist, an accelerator is not available and counts none.

    A runtime that takes an empty text for an unset variable shows all.
    """
    answers = _answer(limited, name)
    expect(
        answers["available"] is (answers["count"] > 0) and answers["computing"] == answers["count"],
        f"a process with {name} of the devices contradicts itself",
        found=f"available {answers['available']}, {answers['count']} devices, {answers['computing']} of them compute",
        expected="False and 0, or True and as many as compute",
        do="count the devices that the process may use, at each call",
    )


@pytest.mark.record
@pytest.mark.needs("indexed_devices")
@pytest.mark.parametrize("name", ["all", *_VISIBLE])
def test_probe_counts_what_the_process_has(limited: Answers, name: str) -> None:
    """`evidence()` finds the runtime, and `confirm()` counts the devices of its own process, also none."""
    answers = _answer(limited, name)
    expect(
        set(answers["confirmed"]) == {answers["count"]}
        and all(answers["runtime"])
        and all(answers["reasons"]),
        f"the probe counts other devices than a process with {name} of them has",
        found=f"{answers['confirmed']} confirmed ({answers['reasons']}), device_count() is {answers['count']}, "
        f"runtime {answers['runtime']}",
        expected="one number, a runtime that is there, and a sentence",
        do="ask the runtime in confirm() as device_count() does; no device is no error",
    )
