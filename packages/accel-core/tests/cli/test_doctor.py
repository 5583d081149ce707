# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the doctor says: broken environments by name, the choice and the run as they are, each fault in its line."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from accel_core.cli.doctor import advice
from accel_core.selection.candidates import State
from accel_core.vendor import INTERFACE_VERSION

HANG = "import time; time.sleep(300)"
CRASH = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"


def only_problem(result: Any) -> dict[str, str]:
    assert result.status == 1, result.err
    assert result.report["healthy"] is False
    (problem,) = result.report["problems"]
    assert all("\n" not in text for text in problem.values())
    found: dict[str, str] = problem
    return found


def test_rank_is_reported(healthy: Any) -> None:
    mpich = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    notes = {note["code"]: note["found"] for note in healthy.doctor(**mpich).report["notes"]}
    assert "RANK=1, WORLD_SIZE=2, LOCAL_RANK=1, MASTER_ADDR=127.0.0.1, MASTER_PORT=" in notes["rank"]
    notes = {note["code"]: note["found"] for note in healthy.doctor(HOROVOD_RANK="1").report["notes"]}
    assert "HOROVOD_RANK=1 may be the rank" in notes["rank-like"]
    problem = only_problem(healthy.doctor(PMIX_RANK="1"))
    assert (problem["code"], problem["subject"]) == ("rank", "launcher")
    assert "set WORLD_SIZE, LOCAL_RANK, MASTER_ADDR for each rank" in problem["advice"]


def test_torch_is_not_installed(bare: Any) -> None:
    bare.cpu()
    problem = only_problem(bare.doctor())
    assert (problem["code"], problem["subject"]) == ("torch-missing", "torch")
    assert "pip install 'torch<2.16,>=2.8'" in problem["advice"]


@pytest.mark.sample("raises")
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "raise ImportError('libhccl.so: cannot open shared object file: No such file or directory')",
            "libhccl.so",
        ),
        ("raise SystemExit('no driver')", "SystemExit: no driver"),
        (CRASH, "died by SIGSEGV"),
    ],
    ids=["raises", "exits", "crashes"],
)
def test_a_backend_extension_breaks_the_import_of_torch(healthy: Any, body: str, reason: str) -> None:
    healthy.backend("torch_well", "pass", "torch-well")
    healthy.backend("torch_sick", body)
    result = healthy.doctor()
    problem = only_problem(result)
    assert problem["code"] == "torch-autoload"
    assert "'torch_sick' of torch-sick 2.13.0" in problem["found"]
    assert reason in problem["found"]
    assert problem["advice"].startswith("export TORCH_DEVICE_BACKEND_AUTOLOAD=0, or pip uninstall torch-sick")
    assert ("LD_LIBRARY_PATH" in problem["advice"]) == ("libhccl" in reason)
    assert result.states() == {"cpu": "chosen"}  # what it would be with that line


@pytest.mark.slow
def test_a_backend_extension_hangs_the_import_of_torch(bare: Any) -> None:
    bare.torch()
    bare.backend("torch_sick", HANG)
    problem = bare.doctor("--timeout", "1.5").remarks()["torch-autoload"]
    assert "'torch_sick' of torch-sick 2.13.0" in problem["found"]
    assert "did not answer within 9 s" in problem["found"]


def test_torch_itself_can_not_be_imported(healthy: Any) -> None:
    healthy.module("torch/BROKEN", "")
    problem = only_problem(healthy.doctor())
    assert problem["code"] == "torch-import"
    assert "libtorch_cpu.so" in problem["found"]
    assert "pip install --force-reinstall torch==2.13.0" in problem["advice"]


@pytest.mark.sample("in the place of torch")
@pytest.mark.parametrize("installed", [False, True], ids=["without torch", "in the place of torch"])
def test_a_folder_called_torch_is_imported_in_its_place(bare: Any, tmp_path: Any, installed: bool) -> None:
    bare.cpu()
    folder = tmp_path / "work"
    if installed:
        folder = bare.path
        bare.module("torch/__init__.py", "")
        bare.distribution("torch", "2.13.0")
    (folder / "torch").mkdir(parents=True, exist_ok=True)
    problem = bare.doctor(cwd=folder).remarks()["torch-shadowed"]
    assert str(folder / "torch") in problem["found"]
    assert problem["advice"].startswith(f"remove or rename {folder / 'torch'}, or start in another folder")
    assert ("pip install 'torch" in problem["advice"]) == (not installed)
    assert "unknown" not in problem["advice"]


def test_torch_is_outside_what_a_vendor_package_requires(healthy: Any) -> None:
    healthy.vendor("toy", requires_dist=("torch>=2.14", "packaging>=1; extra == 'never'"))
    problem = only_problem(healthy.doctor())
    assert problem["code"] == "requirement"
    assert problem["found"] == "accel-toy 1.0 requires torch>=2.14, found 2.13.0"
    assert problem["advice"] == "pip install 'torch>=2.14'"


def test_a_backend_extension_was_built_for_another_torch(healthy: Any) -> None:
    healthy.distribution(
        "torch-old", "2.1", {"torch.backends": {"old": "os:getpid"}}, ("torch==2.1.*", "pyyaml")
    )
    result = healthy.doctor()
    found = [problem["found"] for problem in result.report["problems"]]
    assert found == [
        "torch-old 2.1 requires torch==2.1.*, found 2.13.0",
        "torch-old 2.1 requires pyyaml, found none",
    ]
    advice, _ = (problem["advice"] for problem in result.report["problems"])
    assert advice.startswith("pip install --upgrade torch-old torch==2.13.0; or pip uninstall torch-old: ")
    assert result.status == 1


def test_deepspeed_is_outside_the_supported_releases(bare: Any) -> None:
    problem = only_problem(bare.complete(deepspeed="0.15.4").doctor())
    assert (problem["code"], problem["subject"]) == ("deepspeed-version", "deepspeed")
    assert "0.15.4" in problem["found"]
    assert "pip install 'deepspeed" in problem["advice"]


def test_the_entry_point_that_joins_deepspeed_is_missing(healthy: Any) -> None:
    (points,) = healthy.path.glob("accel_core-*.dist-info/entry_points.txt")
    points.unlink()
    problem = only_problem(healthy.doctor())
    assert problem["code"] == "bridge-broken"
    assert "reinstall ./packages/accel-core" in problem["advice"]


#: A runtime's fault, and what is found.
RUNTIMES = {
    "raises": ("raise ImportError('libtoy.so.3: cannot open shared object file')", "ImportError"),
    "exits": ("raise SystemExit(3)", "SystemExit"),
    "crashes": (CRASH, "died by SIGSEGV"),
    "quits": ("import os; os._exit(7)", "ended its process with status 7"),
}


def test_runtimes_that_fail_are_broken_and_the_next_device_is_chosen(healthy: Any) -> None:
    for place, (key, (confirm, _)) in enumerate(RUNTIMES.items()):
        healthy.vendor(key, 2000 - place, confirm)
    result = healthy.doctor()
    assert result.status == 1
    problems = {problem["subject"]: problem for problem in result.report["problems"]}
    assert list(problems) == [*RUNTIMES]
    for key, (_, found) in RUNTIMES.items():
        assert found in problems[key]["found"]
        assert f"export ACCEL_SKIP={key}" in problems[key]["advice"]
        assert ("folder of libtoy.so.3 in" in problems[key]["advice"]) == (key == "raises")
    for key in ("raises", "exits"):
        assert problems[key]["code"] == "candidate-broken"
        assert "Traceback" in result.candidate(key)["error"]
    assert "vendor_crashes.py" in result.candidate("crashes")["error"]  # the Python line it crashed in
    assert result.states() == {**dict.fromkeys(RUNTIMES, "broken"), "cpu": "chosen"}


# --- the choice: it is the run's own, and every fault of it has its line


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


def test_lock_of_killed_build_is_noted(bare: Any, tmp_path: Path) -> None:
    bare.torch()
    bare.cpu()
    lock = tmp_path / "user's/cpu_adam/lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    result = bare.doctor(TORCH_EXTENSIONS_DIR=str(lock.parents[1]))
    assert result.status == 0
    note = result.remarks("notes")["stale-lock"]
    assert str(lock) in note["found"]
    subprocess.run(note["advice"], shell=True, check=True)
    assert not lock.exists()


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


@pytest.mark.slow
def test_a_runtime_that_hangs_is_stuck_until_it_is_skipped(healthy: Any) -> None:
    healthy.vendor("toy", confirm=HANG)
    result = healthy.doctor("--timeout", "10")
    (problem,) = result.report["problems"]
    assert (result.status, problem["code"], problem["subject"]) == (1, "candidate-stuck", "toy")
    assert "did not answer within 10 s" in problem["found"]
    assert problem["advice"] == "export ACCEL_SKIP=toy passes over it"
    assert result.states() == {"toy": "broken", "cpu": "chosen"}
    skipped = healthy.doctor(ACCEL_SKIP="toy")
    assert skipped.status == 0
    assert skipped.states() == {"toy": "blocked", "cpu": "chosen"}


def test_unknown_key_in_skip_is_reported(healthy: Any) -> None:
    assert only_problem(healthy.doctor(ACCEL_SKIP="nqu"))["code"] == "skip-unknown"


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


# --- of the run: both doors, the real torch, what ends the process

TOY = {"accelerator": "vendor_toy:Toy", "error": ""}
OWN = {"accelerator": "deepspeed.accelerator:Own_Accelerator", "error": ""}
OFF = {"ACCEL_BRIDGE": {"ACCEL_BRIDGE": "0"}, "autoload": {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}}


@pytest.fixture
def toy(healthy: Any) -> Any:
    healthy.vendor("toy")
    return healthy


@pytest.mark.sample("ACCEL_BRIDGE")
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
    bare.deepspeed("0.19.8")
    assert "No module named 'torch'" in bare.doctor().report["run"]["deepspeed"]["error"]


def test_in_a_pipe_each_candidate_has_one_line_without_blanks_at_its_end(toy: Any) -> None:
    lines = toy.run("doctor").out.splitlines()
    assert not [line for line in lines if line != line.rstrip()]
    (row,) = [line for line in lines if line.startswith("toy ")]
    assert row.split() == ["toy", "chosen", "2", "accel-toy", "1.0:", "the", "runtime", "counts", "2"]
    narrow = toy.run("doctor", COLUMNS="80").out.splitlines()
    assert not [line for line in narrow if line != line.rstrip()]
    assert max(len(line) for line in narrow if not line.startswith("  do: ")) <= 80


# --- docs/doctor.md documents what the doctor prints

PAGE = (Path(__file__).resolve().parents[4] / "docs/doctor.md").read_text(encoding="utf-8")


def shape(value: Any) -> Any:
    """The document without its values; a list by its first element."""
    if isinstance(value, dict):
        return {name: shape(part) for name, part in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def test_the_json_of_the_page_has_the_shape_of_the_real_one(healthy: Any) -> None:
    points = {"accel.deepspeed_patches": {"toy": "toy_patches"}}
    healthy.distribution("toy-patches", entry_points=points)
    rows = "def examined(): return [('zero3-step', True, 'reason', 'speed-ups')]"
    healthy.module("toy_patches.py", f"INTERFACE, MODULES = {INTERFACE_VERSION}, ()\n{rows}")
    healthy.vendor("toy", devices=0, requires_dist=("torch>=2.14",))
    (block,) = re.findall(r"^```json\n(.+?)^```", PAGE, re.MULTILINE | re.DOTALL)
    report = healthy.doctor().report
    report["candidates"] = [candidate for candidate in report["candidates"] if candidate["label"] == "cpu"]
    assert shape(json.loads(block)) == shape(report)


def test_every_code_and_every_state_is_reported() -> None:
    source = Path(advice.__file__).read_text(encoding="utf-8")
    codes = set(re.findall(r'Remark\(\s*"([a-z-]+)"', source))
    assert len(codes) > 15
    rows = set(re.findall(r"^\| `?([a-z-]+)`? \|", PAGE, re.MULTILINE)) - {"code", "state", "---"}
    states = {state.value for state in State} - {State.PENDING.value}
    assert rows == codes | states
