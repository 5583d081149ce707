# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the doctor says of the run: both doors, the real torch, what ends the process."""

import importlib.metadata
import sys
from typing import Any

import pytest

from .conftest import run

TOY = {"accelerator": "vendor_toy:Toy", "error": ""}
OWN = {"accelerator": "deepspeed.accelerator:Own_Accelerator", "error": ""}
OFF = {"ACCEL_BRIDGE": {"ACCEL_BRIDGE": "0"}, "autoload": {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}}


@pytest.fixture
def toy(healthy: Any) -> Any:
    healthy.vendor("toy")
    return healthy


@pytest.mark.parametrize("variables", OFF.values(), ids=OFF)
def test_not_joined_it_says_which_accelerator_deepspeed_uses(toy: Any, variables: dict[str, str]) -> None:
    result = toy.doctor(**variables)
    assert result.status == 0, result.out
    assert result.report["run"] == {"accel_core": TOY, "deepspeed": OWN}
    assert "bridge-off" in result.remarks("notes")
    said = " ".join(toy.run("doctor", **variables).out.split())
    assert (
        "A program that imports deepspeed uses DeepSpeed's own Own_Accelerator (deepspeed.accelerator)"
        in said
    )
    assert "accel_core's own functions would give toy" in said


def test_not_joined_an_import_of_deepspeed_that_fails_is_a_problem(toy: Any) -> None:
    toy.module("deepspeed/accelerator/__init__.py", "import os\nos.environ['CANN']\n")
    result = toy.doctor(ACCEL_BRIDGE="0")
    assert result.status == 1
    assert (
        result.remarks()["deepspeed-fails"]["found"] == "a program that imports it ends in KeyError: 'CANN'"
    )
    assert result.report["run"]["deepspeed"] == {"accelerator": "", "error": "KeyError: 'CANN'"}
    assert toy.doctor().status == 0


def test_what_ends_the_process_is_what_both_doors_end_with(toy: Any) -> None:
    toy.vendor("crash", 2100, confirm="import os; os.abort()")
    result = toy.doctor()
    error = {"accelerator": "", "error": "crash: its process died by SIGABRT"}
    assert result.report["run"] == {"accel_core": error, "deepspeed": error}
    assert result.report["chosen"] == "toy"
    said = " ".join(toy.run("doctor").out.split())
    assert (
        "A fresh process ends with crash: its process died by SIGABRT. Without that, a run would use toy"
        in said
    )


def test_a_crash_of_one_that_no_run_asks_leaves_the_run_alone(toy: Any) -> None:
    toy.vendor("crash", 1900, confirm="import os; os.abort()")
    result = toy.doctor()
    assert result.report["run"] == {"accel_core": TOY, "deepspeed": TOY}
    assert result.remarks()["candidate-stuck"]["subject"] == "crash"


def test_without_torch_or_deepspeed_a_program_that_needs_them_ends_so(bare: Any) -> None:
    bare.cpu()
    bare.deepspeed()
    assert "No module named 'torch'" in bare.doctor().report["run"]["deepspeed"]["error"]


def test_in_a_pipe_each_candidate_has_one_line_without_blanks_at_its_end(toy: Any) -> None:
    lines = toy.run("doctor").out.splitlines()
    assert not [line for line in lines if line != line.rstrip()]
    (row,) = [line for line in lines if line.startswith("toy ")]
    assert row.split() == ["toy", "chosen", "2", "accel-toy", "1.0:", "the", "runtime", "counts", "2"]
    narrow = toy.run("doctor", COLUMNS="80").out.splitlines()
    assert not [line for line in narrow if line != line.rstrip()]
    assert max(len(line) for line in narrow if not line.startswith("  do: ")) <= 80


# --- the doctor against the real torch, to which the fake one of the other tests is held

EXAMINE = """
import json
from dataclasses import asdict
from accel_core.cli.doctor import examine
from accel_core.cli.child import Worker
worker = Worker(*examine.STEPS)
print(json.dumps(asdict(examine.examine_torch(worker.ask(120, "torch"), 120))))
worker.close()
"""


def test_it_names_the_backend_extension_that_breaks_the_real_torch(bare: Any) -> None:
    bare.backend("torch_sick", "raise ImportError('libhccl.so: cannot open shared object file')")
    torch = run(sys.executable, "-c", EXAMINE, PYTHONPATH=str(bare.site)).report
    assert (torch["imports"], torch["without_vendors"]) == (False, True)
    assert (torch["culprit"], torch["culprit_package"], torch["culprit_version"]) == (
        "torch_sick",
        "torch-sick",
        "2.13.0",
    )
    assert torch["reason"] == "ImportError: libhccl.so: cannot open shared object file"
    assert "Failed to load the backend extension: torch_sick" in torch["error"]


def test_the_real_torch_imports_and_reports_its_version() -> None:
    torch = run(sys.executable, "-c", EXAMINE).report
    assert (torch["imports"], torch["without_vendors"], torch["reason"]) == (True, True, "")
    assert torch["version"].startswith(importlib.metadata.version("torch").partition("+")[0])
    assert torch["claimed"] == ""
