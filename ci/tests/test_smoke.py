# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The trial of an installed package, in this environment, with answers that it could get elsewhere."""

import subprocess
from typing import Any

import pytest

from ci import smoke
from ci.problem import Problem

CANDIDATE = {"key": "cpu", "package": "accel-cpu", "state": "present", "runtime": True, "reason": "2 CPUs"}
CLASS = "accel_cpu.accelerator.CPU_Accelerator"


def answers(monkeypatch: pytest.MonkeyPatch, status: int = 0, **given: Any) -> None:
    """Let each question to another process have an answer as of a good wheel, but for those given."""
    known = {"doctor": {"candidates": [CANDIDATE]}, "accelerator": [CLASS, True], "library": ["wheel"] * 2}
    known |= given

    def ask(*arguments: str, **variables: str) -> Any:
        kinds = {smoke._ACCELERATOR: "accelerator", smoke._LIBRARY: "library"}
        return known[kinds.get(arguments[-1], "doctor")]

    monkeypatch.setattr(smoke, "_ask", ask)
    done = subprocess.CompletedProcess[str]([], status, "", "broken")
    monkeypatch.setattr(smoke, "_python", lambda *arguments: done)


def test_this_environment_gives_the_cpu_to_deepspeed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Editable packages may have compiled their library here.
    monkeypatch.setattr(smoke, "_check_library", lambda: iter(()))
    monkeypatch.setenv("DS_ACCELERATOR", "npu")
    assert list(smoke.check("accel-cpu", True)) == []
    assert f"verified: cpu gives {CLASS}, to DeepSpeed and accel_core alike" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"status": 1}, "python -m pip check failed"),
        ({"doctor": {"candidates": []}}, "accel doctor does not offer cpu"),
        ({"doctor": {"candidates": [{**CANDIDATE, "state": "broken"}]}}, "accel doctor does not offer cpu"),
        ({"accelerator": ["deepspeed.accelerator.CPU_Accelerator", True]}, "DeepSpeed does not use"),
        ({"accelerator": [CLASS, False]}, "DeepSpeed does not use"),
        ({"library": ["compiled on this machine", "wheel"]}, "the host kernels are not the library"),
    ],
)
def test_each_thing_that_does_not_work_is_reported(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], what: str
) -> None:
    answers(monkeypatch)
    assert list(smoke.check("accel-cpu", True)) == []
    answers(monkeypatch, **given)
    assert [problem for problem in smoke.check("accel-cpu", True) if problem.what.startswith(what)]


def test_a_missing_runtime_fails_only_when_the_device_is_required(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = {**CANDIDATE, "state": "absent", "runtime": False}
    answers(monkeypatch, doctor={"candidates": [absent]})
    assert list(smoke.check("accel-cpu", False)) == []
    assert "not verified on this machine: DS_ACCELERATOR=cpu gives the accel" in capsys.readouterr().out
    (problem,) = smoke.check("accel-cpu", True)
    assert problem.what.startswith("not verified")


def test_output_without_an_answer_is_shown_with_its_end() -> None:
    with pytest.raises(Problem, match="no toy"):
        smoke._ask("-c", "raise ValueError('no toy')")
