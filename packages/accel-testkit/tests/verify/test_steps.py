# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Whatever a driver does to a step, it costs that step's row, which says what happened and where."""

import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from accel_testkit.verify import steps
from accel_testkit.verify.report import StepRow
from accel_testkit.verify.steps import STEPS, Step

#: A guard for steps that end by themselves.
_LIMIT = 300.0
_BY_NAME = {step.name: step for step in STEPS}
_STREAM = """
import json, os, signal, sys, time
from accel_testkit import stock_builds
def line(**plain):
    with open("results.jsonl", "a") as lines: lines.write(json.dumps(plain) + "\\n")
def check(name, outcome="passed", reason=""):
    line(running=name); line(id=name, outcome=outcome, reason=reason)
def finish(): line(finished=True, order=[])
"""


def step(name: str, program: str) -> Step:
    """The step of this name, with a program in the place of its command."""
    code = f"import os; os.chdir(os.path.dirname(os.environ['ACCEL_VERIFY_ANSWER']))\n{_STREAM}\n{program}"
    return replace(_BY_NAME[name], command=lambda key, mode, folder: (sys.executable, "-c", code))


def run(name: str, program: str, folder: Path, limit: float = _LIMIT) -> StepRow:
    return step(name, program).run("cpu", "quick", folder, limit, lambda far: None)


@dataclass
class Fault:
    """A program, the state of its row, and words that the row must have."""

    step: str
    program: str
    state: str
    words: tuple[str, ...] = ()
    limit: float = _LIMIT


FAULTS = {
    "abort in a check": Fault("device", "check('a'); line(running='b'); os.abort()", "crashed", ("SIGABRT", "b")),
    "segmentation fault": Fault(
        "device", "line(running='c'); import ctypes; ctypes.string_at(0)", "crashed", ("SIGSEGV", "c", "Segmentation")
    ),
    "killed for its memory": Fault("engine-1", "os.kill(os.getpid(), signal.SIGKILL)", "crashed", ("SIGKILL",)),
    "hang in a check": Fault(
        "device", "line(running='slow.one'); time.sleep(900)", "timed out", ("no progress for", "slow.one"), 3
    ),
    "hang before any check": Fault("engine-2", "time.sleep(900)", "timed out", ("no progress for",), 2),
    "driver leaves with status 0": Fault("device", "check('a'); os._exit(0)", "crashed", ("status 0", "1 passed")),
    "driver leaves with its own status": Fault("device", "os._exit(77)", "crashed", ("status 77",)),
    "exit at import": Fault("host", "sys.exit('torch_npu: no CANN')", "crashed", ("no CANN",)),
    "exception before any check": Fault("host", "raise MemoryError('hbm')", "crashed", ("MemoryError: hbm",)),
    "no check at all": Fault("device", "finish()", "crashed", ("0 passed",)),
    "one check fails": Fault(
        "device", "check('a', 'failed', 'expected 1, found 2'); check('b'); finish()", "failed",
        ("a", "expected 1, found 2", "1 passed, 1 failed"),
    ),
    "stock DeepSpeed does not start": Fault(
        "engine-1",
        "check('a'); [check(n, 'failed', stock_builds.NOT_STARTED + chr(10) + 'no ninja') for n in 'bc']; finish()",
        "failed", ("not the accelerator", "did not start", "no ninja", "2 checks compare with it", "2 failed"),
    ),
    "failure, then a crash": Fault(
        "device", "check('a', 'failed', 'NaN'); line(running='b'); os.abort()", "crashed", ("1 failed", "NaN", "b")
    ),
    "half a line at the end": Fault(
        "device", "check('a'); open('results.jsonl', 'a').write('{\"id\": \"b'); os.abort()", "crashed", ("1 passed",)
    ),
    "another language": Fault(
        "device", "sys.stderr.buffer.write('设备内存不足'.encode('gbk') + b' E19999'); sys.exit(1)", "crashed",
        ("E19999",),
    ),
    "wide characters": Fault("device", "sys.exit('设备内存不足')", "crashed", ("设备内存不足",)),
    "endless log": Fault(
        "device", "for _ in range(2000): print('x' * 10000)\nsys.exit('the last words')", "crashed", ("the last words",)
    ),
    "no answer": Fault("machine", "pass", "crashed", ("no result",)),
    "half an answer": Fault("machine", "open('answer.json', 'w').write('{')", "crashed", ("no result",)),
    "doctor prints no JSON": Fault("doctor", "print('banner')", "crashed", ("no result",)),
    "ops crash": Fault("ops", "os.abort()", "crashed", ("SIGABRT",)),
    "op fails": Fault(
        "ops",
        "print('driver 1.2 {banner}'); print(json.dumps({'ops': [{'builder': 'FusedAdamBuilder', 'state': 'failed',"
        " 'reason': 'undefined symbol'}]}, indent=1))",
        "failed", ("FusedAdamBuilder", "undefined symbol"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_costs_its_row_and_is_named(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    row = run(fault.step, fault.program, tmp_path / "step", fault.limit)
    words = json.dumps([row.found, row.failures], ensure_ascii=False)
    assert row.state == fault.state, words
    assert all(word in words for word in fault.words), words
    assert row.advice
    assert len(words) < 10_000
    assert json.loads(json.dumps(row.table)) == row.table


@pytest.mark.more
def test_crash_costs_one_check(tmp_path, monkeypatch) -> None:
    killed = '("[initial_seed]", "[is_available]", "[create_graph]")'  # the last one, too
    program = f"import os\ndef pytest_runtest_setup(item): item.name.endswith({killed}) and os.kill(os.getpid(), 9)\n"
    (tmp_path / "killer.py").write_text(program, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p killer -k current_device_stays")
    multi = _BY_NAME["multi"]
    row = multi.run("cpu", "quick", tmp_path / "step", _LIMIT, lambda far: None)
    assert row.state == "failed"
    names = [
        f"device.current_device_stays[{name}]" for name in ("initial_seed", "is_available", "create_graph")
    ]
    assert sorted(failure["name"] for failure in row.failures) == sorted(names)
    assert all("died by SIGKILL" in failure["reason"] for failure in row.failures)
    checks = json.loads((tmp_path / "step" / "results.json").read_text())["checks"]
    assert row.found == f"0 passed, 3 failed, {len(checks) - 3} skipped"


def test_a_step_that_works_passes_without_advice(tmp_path: Path) -> None:
    row = run("device", "check('a'); check('b', 'skipped', 'declared'); finish()", tmp_path / "step")
    assert (row.state, row.found) == ("passed", "1 passed, 0 failed, 1 skipped")
    assert (row.advice, row.failures) == ("", [])


def test_failures_stand_in_the_order_of_their_causes(tmp_path: Path) -> None:
    program = "check('late', 'failed', ''); check('basic', 'failed', ''); line(finished=True, order=['basic', 'late'])"
    row = run("device", program, tmp_path / "step")
    assert [failure["name"] for failure in row.failures] == ["basic", "late"]


def test_what_an_earlier_run_left_is_removed_and_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "step"
    run("device", "os.makedirs('kernels/cache'); check('old', 'failed', 'old'); finish()", folder)
    row = run("device", "check('new'); finish()", folder)
    assert (row.state, row.failures) == ("passed", [])
    assert not (folder / "kernels").exists()


def test_driver_that_prints_without_end_does_not_fill_the_disk(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(steps, "_MOST_PRINTED", 10_000)
    program = (
        "while not os.path.exists('emptied'): os.write(1, b'x' * 10_001); time.sleep(0.001)\n"
        "while os.fstat(1).st_size: time.sleep(0.001)\n"
        "print('the last words'); sys.exit(1)"
    )
    folder, largest = tmp_path / "step", 0

    def tick(far: str) -> None:
        nonlocal largest
        size = (folder / "stdout").stat().st_size
        if size < largest:
            (folder / "emptied").touch()
        largest = max(largest, size)

    row = step("device", program).run("cpu", "quick", folder, _LIMIT, tick)
    assert row.state == "crashed"
    assert "the last words" in row.failures[0]["reason"]


@pytest.mark.slow
def test_a_slow_step_that_goes_on_is_not_ended(tmp_path: Path) -> None:
    program = "for n in range(5): time.sleep(5); check(str(n))\nfinish()"
    assert run("device", program, tmp_path / "step", limit=20).state == "passed"


def test_note_is_progress_and_shown(tmp_path: Path) -> None:
    seen = set()
    program = "for n in range(8): time.sleep(1); line(progress=f'compiles: {n} s')\ncheck('a'); finish()"
    row = step("engine-1", program).run("cpu", "quick", tmp_path / "step", 4, seen.add)
    assert (row.state, row.found) == ("passed", "1 passed, 0 failed")
    assert "compiles: 5 s" in seen


def test_progress_is_shown_while_a_step_runs(tmp_path: Path) -> None:
    seen: list[str] = []
    program = "check('a'); check('b')\nwhile not os.path.exists('seen'): time.sleep(0.01)\nfinish()"

    def tick(far: str) -> None:
        seen.append(far)
        if far == "2 checks":
            (tmp_path / "step" / "seen").touch()

    row = step("device", program).run("cpu", "quick", tmp_path / "step", _LIMIT, tick)
    assert row.state == "passed"
    assert "2 checks" in seen
