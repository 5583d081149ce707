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


_TOY_REQUIRES = ("torch>=2.14", "packaging>=1; extra == 'never'")
#: Code of a problem: how it comes about, its subject, parts of what is found and of the advice, variables.
FAULTS: dict[str, tuple[Any, ...]] = {
    "torch-missing": (lambda bare: bare.cpu(), "torch", "", "pip install 'torch<2.16,>=2.8'"),
    "torch-import": (lambda bare: bare.complete().module("torch/BROKEN", ""),
                     "torch", "libtorch_cpu.so", "pip install --force-reinstall torch==2.13.0"),
    "requirement": (lambda bare: bare.complete().vendor("toy", requires=_TOY_REQUIRES), "accel-toy",
                    "accel-toy 1.2 requires torch>=2.14, found 2.13.0", "pip install 'torch>=2.14'"),
    "deepspeed-version": (lambda bare: bare.complete("0.15.4"),
                          "deepspeed", "0.15.4", "pip install 'deepspeed"),
    "bridge-refused": (lambda bare: bare.complete("0.19.10"),
                       "bridge", "0.19.10 chooses by itself", "pip install --upgrade"),
    "bridge-broken": (lambda bare: bare.complete().distribution("accel-core"),
                      "bridge", "without its entry point", "reinstall ./packages/accel-core"),
    "skip-unknown": (lambda bare: bare.complete(),
                     "selection", "nqu", "correct ACCEL_SKIP", {"ACCEL_SKIP": "nqu"}),
    "rank": (lambda bare: bare.complete(), "launcher", "PMIX_RANK=1",
             "set WORLD_SIZE, LOCAL_RANK, MASTER_ADDR for each rank", {"PMIX_RANK": "1"}),
}  # fmt: skip


@pytest.mark.parametrize("code", FAULTS)
def test_fault_is_one_problem(bare: Any, code: str) -> None:
    prepare, subject, found, advice, *variables = FAULTS[code]
    prepare(bare)
    problem = only_problem(bare.doctor(**dict(*variables)))
    assert (problem["code"], problem["subject"]) == (code, subject)
    assert found in problem["found"]
    assert advice in problem["advice"]


def test_rank_is_noted(healthy: Any) -> None:
    mpich = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    found = healthy.doctor(**mpich).remarks("notes")["rank"]["found"]
    assert "RANK=1, WORLD_SIZE=2, LOCAL_RANK=1, MASTER_ADDR=127.0.0.1, MASTER_PORT=" in found
    found = healthy.doctor(HOROVOD_RANK="1").remarks("notes")["rank-like"]["found"]
    assert "HOROVOD_RANK=1 may be the rank" in found


@pytest.mark.sample("raises")
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise ImportError('libhccl.so: cannot open shared object file: No such file')", "libhccl.so"),
        ("raise SystemExit('no driver')", "SystemExit: no driver"),
        (CRASH, "died by SIGSEGV"),
    ],
    ids=["raises", "exits", "crashes"],
)
def test_backend_extension_breaks_import_of_torch(healthy: Any, body: str, reason: str) -> None:
    healthy.backend("torch_well", "pass", "torch-well")
    healthy.backend("torch_sick", body)
    result = healthy.doctor()
    problem = only_problem(result)
    assert problem["code"] == "torch-autoload"
    assert "'torch_sick' of torch-sick 2.13.0" in problem["found"]
    assert reason in problem["found"]
    off = "export TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import accel_core ahead of deepspeed"
    assert problem["advice"].endswith(f"{off}, or pip uninstall torch-sick")
    assert ("LD_LIBRARY_PATH" in problem["advice"].partition(off)[0]) == ("libhccl" in reason)
    assert result.states() == {"cpu": "chosen"}  # what it would be with that line


@pytest.mark.slow
def test_backend_extension_hangs_import_of_torch(bare: Any) -> None:
    bare.torch()
    bare.backend("torch_sick", HANG)
    problem = bare.doctor("--timeout", "1.5").remarks()["torch-autoload"]
    assert "'torch_sick' of torch-sick 2.13.0" in problem["found"]
    assert "did not answer within 9 s" in problem["found"]


@pytest.mark.sample("True")
@pytest.mark.parametrize("installed", [False, True])
def test_folder_called_torch_is_imported(bare: Any, tmp_path: Path, installed: bool) -> None:
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


def test_backend_extension_for_another_torch(healthy: Any) -> None:
    points = {"torch.backends": {"old": "os:getpid"}}
    healthy.distribution("torch-old", "2.1", points, ("torch==2.1.*", "pyyaml"))
    result = healthy.doctor()
    assert result.status == 1
    first, second = result.report["problems"]
    assert first["found"] == "torch-old 2.1 requires torch==2.1.*, found 2.13.0"
    assert second["found"] == "torch-old 2.1 requires pyyaml, found none"
    assert second["advice"] == "pip install pyyaml"
    upgrade = "pip install --upgrade torch-old torch==2.13.0; or pip uninstall torch-old: "
    assert first["advice"].startswith(upgrade)


#: A runtime's fault, and what is found.
RUNTIMES = {
    "raises": ("raise ImportError('libtoy.so.3: cannot open shared object file')", "ImportError"),
    "exits": ("raise SystemExit(3)", "SystemExit"),
    "crashes": (CRASH, "died by SIGSEGV"),
    "quits": ("import os; os._exit(7)", "ended its process with status 7"),
}


def test_failing_runtimes_are_broken(healthy: Any) -> None:
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
    # The Python line it crashed in.
    assert "fake_accel_crashes/probe.py" in result.candidate("crashes")["error"]
    assert result.states() == {**dict.fromkeys(RUNTIMES, "broken"), "cpu": "chosen"}


# --- the choice: it is the run's own, and every fault of it has its line


def test_machine_with_only_a_cpu_is_healthy(bare: Any, tmp_path: Path) -> None:
    bare.torch()
    bare.cpu()
    (tmp_path / "torch.py").write_text("raise ImportError('a file of the user, next to no script')")
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


def test_device_is_chosen_and_others_outranked(healthy: Any) -> None:
    healthy.vendor("toy", 2000, confirm="print('noise'); import sys; print('noise', file=sys.stderr)")
    healthy.vendor("lower", 1500, devices=4)
    healthy.vendor("empty", 1400, devices=0)
    result = healthy.doctor()
    assert result.status == 0, result.out
    assert result.report["chosen"] == "toy"
    assert result.states() == {"toy": "chosen", "lower": "outranked", "empty": "absent", "cpu": "outranked"}
    assert [result.candidate(label)["devices"] for label in ("toy", "lower", "empty", "cpu")] == [2, 4, 0, 1]
    assert (result.candidate("toy")["package"], result.candidate("toy")["version"]) == ("accel-toy", "1.2")


@pytest.mark.slow
def test_hanging_runtime_is_stuck(healthy: Any) -> None:
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


def test_stale_runtime_blocks_device(healthy: Any) -> None:
    for key, priority, devices in (("stale", 2000, 0), ("real", 1900, 3)):
        slot = f"privateuse1={key!r}"
        healthy.vendor(key, priority, f"torch.claim_privateuse1({key!r})", devices, record=slot)
    result = healthy.doctor()
    (problem,) = result.report["problems"]
    assert (result.status, problem["code"], problem["subject"]) == (1, "candidate-blocked", "real")
    assert problem["advice"] == "export ACCEL_SKIP=stale"
    assert result.states() == {"stale": "absent", "real": "blocked", "cpu": "chosen"}
    assert result.candidate("real")["devices"] == 3


# --- of the run: both doors, the real torch, what ends the process

TOY = {"accelerator": "fake_accel_toy.accelerator:Fake_Accelerator", "error": ""}
OWN = {"accelerator": "deepspeed.accelerator:Own_Accelerator", "error": ""}
OFF = {"ACCEL_BRIDGE": {"ACCEL_BRIDGE": "0"}, "autoload": {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}}


@pytest.fixture
def toy(healthy: Any) -> Any:
    healthy.vendor("toy")
    return healthy


@pytest.mark.sample("ACCEL_BRIDGE")
@pytest.mark.parametrize("variables", OFF.values(), ids=OFF)
def test_deepspeeds_accelerator_without_hooks(toy: Any, variables: dict[str, str]) -> None:
    result = toy.doctor(**variables)
    assert result.status == 0, result.out
    assert result.report["run"] == {"accel_core": TOY, "deepspeed": OWN}
    assert "bridge-off" in result.remarks("notes")
    said = " ".join(toy.run("doctor", **variables).out.split())
    own = "DeepSpeed's own Own_Accelerator (deepspeed.accelerator)"
    assert f"A program that imports deepspeed uses {own}" in said
    assert "accel_core's own functions would give toy" in said


def test_failing_deepspeed_without_hooks(toy: Any) -> None:
    toy.module("deepspeed/accelerator/__init__.py", "import os\nos.environ['CANN']\n")
    result = toy.doctor(ACCEL_BRIDGE="0")
    assert result.status == 1
    found = "a program that imports it ends in KeyError: 'CANN'"
    assert result.remarks()["deepspeed-fails"]["found"] == found
    assert result.report["run"]["deepspeed"] == {"accelerator": "", "error": "KeyError: 'CANN'"}
    assert toy.doctor().status == 0


def test_crash_of_best_candidate_ends_a_run(toy: Any) -> None:
    toy.vendor("crash", 2100, confirm="import os; os.abort()")
    result = toy.doctor()
    error = "crash: its process died by SIGABRT"
    ended = {"accelerator": "", "error": error}
    assert result.report["run"] == {"accel_core": ended, "deepspeed": ended}
    assert result.report["chosen"] == "toy"
    said = " ".join(toy.run("doctor").out.split())
    assert f"A fresh process ends with {error}. Without that, a run would use toy" in said


def test_crash_of_lower_candidate_ends_no_run(toy: Any) -> None:
    toy.vendor("crash", 1900, confirm="import os; os.abort()")
    result = toy.doctor()
    assert result.report["run"] == {"accel_core": TOY, "deepspeed": TOY}
    assert result.remarks()["candidate-stuck"]["subject"] == "crash"


def test_run_without_torch(bare: Any) -> None:
    bare.cpu()
    bare.deepspeed("0.19.8")
    assert "No module named 'torch'" in bare.doctor().report["run"]["deepspeed"]["error"]


def test_pipe_has_a_line_a_candidate(toy: Any) -> None:
    lines = toy.run("doctor").out.splitlines()
    (row,) = [line for line in lines if line.startswith("toy ")]
    assert row.split() == ["toy", "chosen", "2", "accel-toy", "1.2:", "its", "runtime", "counts", "2"]
    narrow = toy.run("doctor", COLUMNS="80").out.splitlines()
    assert not [line for line in (*lines, *narrow) if line != line.rstrip()]
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


def test_page_has_the_shape_of_the_report(healthy: Any) -> None:
    points = {"accel.deepspeed_patches": {"toy": "toy_patches"}}
    healthy.distribution("toy-patches", entry_points=points)
    rows = "def examined(): return [('zero3-step', True, 'reason', 'speed-ups')]"
    healthy.module("toy_patches.py", f"INTERFACE, MODULES = {INTERFACE_VERSION}, ()\n{rows}")
    healthy.vendor("toy", devices=0, requires=("torch>=2.14",))
    (block,) = re.findall(r"^```json\n(.+?)^```", PAGE, re.MULTILINE | re.DOTALL)
    report = healthy.doctor().report
    report["candidates"] = [candidate for candidate in report["candidates"] if candidate["label"] == "cpu"]
    assert shape(json.loads(block)) == shape(report)


def test_page_has_every_code_and_state() -> None:
    source = Path(advice.__file__).read_text(encoding="utf-8")
    codes = set(re.findall(r'Remark\(\s*"([a-z-]+)"', source))
    assert len(codes) > 15
    rows = set(re.findall(r"^\| `?([a-z-]+)`? \|", PAGE, re.MULTILINE)) - {"code", "state", "---"}
    states = {state.value for state in State} - {State.PENDING.value}
    assert rows == codes | states
