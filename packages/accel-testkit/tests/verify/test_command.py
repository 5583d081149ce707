# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel verify` as a user runs it: on the CPU, on simulated devices, interrupted, and where it cannot work."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from accel_core import processes
from accel_core.cli.main import main
from accel_core.processes import run_module
from accel_testkit.verify.report import Report, kept
from accel_testkit.verify.steps import STEPS

ACCEL = run_module("accel_core.cli")
#: A guard against a hang.
_LIMIT = 1800


def verified(status: int, words: str, out: Path, sim: str = "", **environment: str) -> tuple[Any, Report]:
    """The run, which has to end with this status, and its report."""
    before = (*ACCEL, "sim", *sim.split(), "--", *ACCEL) if sim else ACCEL
    command = [*before, "verify", *words.split(), "--out", str(out)]
    done = processes.run(command, _LIMIT, env={**os.environ, **environment})
    assert done.returncode == status, done.stdout + done.stderr
    report = kept(out / "report.json")
    assert report is not None
    return done, report


@pytest.mark.slow
def test_machine_and_doctor_of_the_cpu(tmp_path: Path) -> None:
    out, steps = tmp_path / "report", "--accel cpu --step machine --step doctor"
    done, report = verified(0, steps, out, DS_TOKEN="s3cret", OMP_NUM_THREADS="1")
    states = {step.name: "passed" if step.name in ("machine", "doctor") else "not run" for step in STEPS}
    assert {row.step: row.state for row in report.rows} == states
    facts = {row["fact"]: row["value"] for row in report.rows[0].table}
    assert facts["accelerator"] == "accel_cpu.accelerator.CPU_Accelerator"
    assert facts["package torch"] == report.versions["torch"]
    assert facts["$OMP_NUM_THREADS"] == "1"
    assert "s3cret" not in (out / "report.json").read_text()
    assert (out / "report.txt").read_text() in done.stdout
    assert "accel verify --quick on cpu" in (out / "report.html").read_text()


def test_a_simulated_device_is_named_as_one(tmp_path: Path) -> None:
    done, report = verified(0, "--step machine", tmp_path, sim="npu")
    assert (report.accelerator, report.simulated) == ("npu", "npu")
    assert report.rows[0].found.startswith("2 devices")
    assert "simulated npu" in done.stdout
    assert (tmp_path / "report.txt").read_text() in done.stdout
    facts = {row["fact"]: row["value"] for row in report.rows[0].table}
    assert "npu-smi" in facts["driver's tool"]
    assert facts["evidence of npu"].endswith("davinci0 exists")


@pytest.mark.slow
def test_ranks_share_a_device_that_a_second_one_can_use(tmp_path: Path) -> None:
    _, report = verified(0, "--step machine", tmp_path, sim="mps")
    assert report.rows[0].found.startswith("ranks share one device")


@pytest.mark.slow
def test_checks_of_two_ranks_are_not_run_where_each_needs_a_device_and_there_is_one(tmp_path: Path) -> None:
    _, report = verified(0, "--step machine --step multi --step engine-2", tmp_path, sim="hpu --devices 1")
    rows = {row.step: row for row in report.rows}
    assert [rows[step].state for step in ("machine", "multi", "engine-2")] == ["passed", "not run", "not run"]


@pytest.mark.slow
def test_a_broken_runtime_is_a_row_and_not_the_end(tmp_path: Path) -> None:
    steps = "--accel npu --step machine --step doctor --step device"
    _, report = verified(1, steps, tmp_path, sim="npu", ACCEL_SIM_BEHAVIOUR="npu.no-cann")
    rows = {row.step: row for row in report.rows}
    assert rows["machine"].state == "crashed"
    assert "libhccl.so" in rows["machine"].failures[0]["reason"]
    assert rows["doctor"].state == "failed"
    assert report.worst == rows["machine"]


@pytest.mark.slow
def test_an_interrupted_run_keeps_its_rows_and_goes_on_with_the_next(tmp_path: Path) -> None:
    wanted = ["--accel", "cpu", "--step", "machine", "--step", "doctor", "--step", "ops", "--out"]
    process = subprocess.Popen(
        [*ACCEL, "verify", *wanted, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        # Jobs in the background of a shell ignore the signal, and so do their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    until = time.monotonic() + _LIMIT
    while not (tmp_path / "steps" / "ops" / "stdout").exists():
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=_LIMIT)
    assert process.returncode == 130
    assert "interrupted" in output
    first = kept(tmp_path / "report.json")
    assert first is not None
    assert [row.step for row in first.rows] == ["machine", "doctor"]

    _, second = verified(0, "--accel cpu --step ops", tmp_path)
    assert second.made == first.made
    assert second.rows[:2] == first.rows
    assert {row.step: row.state for row in second.rows}["ops"] == "passed"


@pytest.mark.parametrize(
    ("words", "code", "advice"),
    [
        ("--accel cpu --step doctor --out file", "ACC-701", "--out"),
        ("--out out", "ACC-207", "--accel KEY"),
    ],
    ids=["a folder that cannot be written", "no accelerator"],
)
def test_what_cannot_be_done_is_an_error_that_says_what_to_do(
    words: str, code: str, advice: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    monkeypatch.delenv("ACCEL_SIM", raising=False)
    assert main(["verify", *words.split()]) == 1
    error = capsys.readouterr().err
    assert code in error
    assert advice in error


# Steps differ only where a process has one device, or ranks share one: the suite and the engine have their own tests.
@pytest.mark.slow
@pytest.mark.parametrize(("key", "like_hardware"), [("cpu", "0"), ("hpu", "1"), ("mps", "0")])
def test_every_step_passes(key: str, like_hardware: str, tmp_path: Path) -> None:
    sim = "" if key == "cpu" else key
    _, report = verified(0, "--quick", tmp_path, sim, DS_ACCELERATOR=key, ACCEL_SIM_HARDWARE=like_hardware)
    assert all(row.state in ("passed", "not run") for row in report.rows)
