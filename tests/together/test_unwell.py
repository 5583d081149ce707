# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Several vendors' runtimes on one machine, some of them stale, broken or in each other's way."""

import json
from typing import Any

import pytest

from accel_sim import behaviours
from shared.children import on_device

#: Ways of real runtimes to fail at import, and the devices that are left.
QUICK = ("npu.no-cann", "hpu.no-library")
FAILURES = [
    behaviour
    for behaviour in behaviours.BEHAVIOURS
    if behaviour.error and not behaviour.name.startswith("xpu")
]
NEXT = {"npu": "sdaa", "hpu": "mlu"}


def test_stale_wheels_do_not_take_the_slot_from_a_device_that_was_found(machine: Any) -> None:
    machine.install("npu", "sdaa", files=False)
    machine.install("mlu")
    found = machine.detect()
    assert (found.chosen, found.imported) == ("mlu", ["torch_mlu"])
    assert found.states("blocked") == {"npu", "sdaa"}
    assert "ACCEL_SKIP=mlu" in found.reason("npu")


@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param(found, id=found.name, marks=[] if found.name in QUICK else [pytest.mark.slow])
        for found in FAILURES
    ],
)
def test_a_broken_runtime_is_named_and_the_next_device_chosen(machine: Any, behaviour: Any) -> None:
    key = behaviour.name.partition(".")[0]
    left = {"npu": ["npu", "sdaa", "hpu", "mlu"], "hpu": ["hpu", "mlu"], "mlu": ["mlu"]}[key]
    machine.install(*left)
    found = machine.detect(ACCEL_SIM_BEHAVIOUR=behaviour.name)
    assert found.states("broken") <= {key, f"{key} (deepspeed)"}
    if key not in NEXT:  # its device is there, and no other
        assert found.answer["error"].startswith(f"{key} cannot be used")
    else:
        assert found.chosen == NEXT[key]
        assert f"fails with {behaviour.error.__name__}: " in found.reason(key)
        (warning,) = found.answer["warnings"]
        assert warning.startswith(f"{key} is broken and ")


#: A command where torch_npu prints at its import, as it does without this variable.
PRINTING = """
import os, sys
del os.environ["ASCEND_HOME_PATH"]
from accel_core.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "words",
    ["ops list --json", "launch --dry_run --json --module json.tool", "doctor --json"],
    ids=lambda words: words[:6],
)
@pytest.mark.sample("launch")
def test_printed_line_stays_out_of_json(words: str) -> None:
    done = on_device("npu", "-c", PRINTING, *words.split())
    assert json.loads(done.out)
    assert "doctor" in words or "ASCEND_HOME_PATH environment variable is not set" in done.err
