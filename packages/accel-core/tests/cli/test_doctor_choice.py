# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the doctor says of the choice: it is the run's own, and every fault of it has its line."""

from pathlib import Path
from typing import Any

import pytest

CRASH = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"


def test_a_machine_with_only_a_cpu_is_healthy_wherever_one_stands(bare: Any, tmp_path: Path) -> None:
    bare.torch()
    bare.cpu()
    (tmp_path / "torch.py").write_text("raise ImportError('a file of the user, beside no script')")
    result = bare.doctor(cwd=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site", "torch.py"]
    assert result.status == 0, result.out
    assert result.states() == {"cpu": "chosen"}
    assert set(result.remarks("notes")) == {"cpu-fallback", "deepspeed-missing"}
    assert "would end on the CPU" in result.remarks("notes")["cpu-fallback"]["found"]


def test_a_present_device_is_chosen_and_the_rest_is_outranked_with_its_devices(healthy: Any) -> None:
    healthy.vendor("toy", 2000, confirm="print('noise'); import sys; print('noise', file=sys.stderr)")
    healthy.vendor("lower", 1500, devices=4)
    healthy.vendor("empty", 1400, devices=0)
    result = healthy.doctor()
    assert result.status == 0, result.out
    assert result.report["chosen"] == "toy"
    assert result.states() == {"toy": "chosen", "lower": "outranked", "empty": "absent", "cpu": "outranked"}
    assert [result.candidate(label)["devices"] for label in ("toy", "lower", "empty", "cpu")] == [2, 4, 0, 1]
    assert (result.candidate("toy")["package"], result.candidate("toy")["version"]) == ("accel-toy", "1.0")


def test_a_runtime_that_hangs_is_stuck_until_it_is_skipped(healthy: Any) -> None:
    healthy.vendor("toy", confirm="import time; time.sleep(300)")
    result = healthy.doctor("--timeout", "10")
    (problem,) = result.report["problems"]
    assert (result.status, problem["code"], problem["subject"]) == (1, "candidate-stuck", "toy")
    assert "did not answer within 10 s" in problem["found"]
    assert problem["advice"] == "export ACCEL_SKIP=toy passes over it"
    assert result.states() == {"toy": "broken", "cpu": "chosen"}
    skipped = healthy.doctor(ACCEL_SKIP="toy")
    assert skipped.status == 0
    assert skipped.states() == {"toy": "blocked", "cpu": "chosen"}


def test_runtimes_that_take_their_process_down(healthy: Any) -> None:
    healthy.vendor("crash", 2000, confirm=CRASH)
    healthy.vendor("quit", 1900, confirm="import os; os._exit(7)")
    result = healthy.doctor()
    found = {problem["subject"]: problem["found"] for problem in result.report["problems"]}
    assert result.status == 1
    assert found.keys() == {"crash", "quit"}
    assert "died by SIGSEGV" in found["crash"]
    assert "ended its process with status 7" in found["quit"]
    assert "vendor_crash.py" in result.candidate("crash")["error"]  # the Python line it crashed in
    assert result.states() == {"crash": "broken", "quit": "broken", "cpu": "chosen"}


def test_a_stale_runtime_that_holds_privateuse1_blocks_the_device_that_is_here(healthy: Any) -> None:
    claim = "torch.claim_privateuse1({!r})"
    healthy.vendor("stale", 2000, claim.format("stale"), devices=0, privateuse1="stale")
    healthy.vendor("real", 1900, claim.format("real"), devices=3, privateuse1="real")
    result = healthy.doctor()
    (problem,) = result.report["problems"]
    assert (result.status, problem["code"], problem["subject"]) == (1, "candidate-blocked", "real")
    assert problem["advice"] == "export ACCEL_SKIP=stale"
    assert result.states() == {"stale": "absent", "real": "blocked", "cpu": "chosen"}
    assert result.candidate("real")["devices"] == 3


def test_a_backend_extension_that_holds_privateuse1_is_named_with_its_switch(healthy: Any) -> None:
    healthy.backend("torch_stale", "import torch; torch.claim_privateuse1('stale')")
    healthy.vendor("real", 1900, "torch.claim_privateuse1('real')", privateuse1="real")
    result = healthy.doctor()
    assert result.remarks()["candidate-blocked"]["advice"] == (
        "export TORCH_DEVICE_BACKEND_AUTOLOAD=0 and export ACCEL_SKIP=stale"
    )


FAULTS = {
    "unknown": ({"DS_ACCELERATOR": "tpu"}, "selection", "DS_ACCELERATOR=tpu is not an accelerator"),
    "empty": ({"DS_ACCELERATOR": ""}, "selection", "DS_ACCELERATOR is set but empty"),
    "no package": ({"DS_ACCELERATOR": "npu"}, "selection", "NPU_Accelerator requires torch_npu"),
    "strict": ({"ACCEL_STRICT": "1"}, "selection", "ACCEL_STRICT=1 refuses a fall-back to CPU"),
    "switch": ({"ACCEL_STRICT": "maybe"}, "environment", "ACCEL_STRICT='maybe'"),
    "bridge": ({"ACCEL_BRIDGE": "maybe"}, "bridge-broken", "ACCEL_BRIDGE='maybe'"),
    "skip": ({"ACCEL_SKIP": "nqu"}, "skip-unknown", "ACCEL_SKIP names nqu"),
}


@pytest.mark.parametrize(("variables", "code", "found"), FAULTS.values(), ids=FAULTS)
def test_a_variable_that_makes_the_run_fail(
    healthy: Any, variables: dict[str, str], code: str, found: str
) -> None:
    result = healthy.doctor(**variables)
    (problem,) = result.report["problems"]
    assert (result.status, problem["code"]) == (1, code)
    assert found in problem["found"]
    assert problem["advice"]
    failed = code in ("selection", "environment")
    assert result.states() == {"cpu": "present" if failed else "chosen"}
    assert bool(result.report["error"]) == failed


def test_a_run_in_the_same_environment_chooses_the_same(healthy: Any) -> None:
    healthy.vendor("sick", 2000, confirm="raise OSError('no driver')")
    healthy.vendor("toy", 1900)
    script = "import json, accel_core; print(json.dumps(accel_core.explain().to_dict()))"
    healthy.module("script.py", script)
    reported = healthy.doctor().report
    run = healthy.python_module("script").report
    assert (reported["chosen"], reported["how"]) == (run["chosen"], run["how"])
    doctor_states = {c["label"]: c["state"] for c in reported["candidates"]}
    assert doctor_states == {c["label"]: c["state"] for c in run["candidates"]}
    assert reported["candidates"][0].keys() == run["candidates"][0].keys()
