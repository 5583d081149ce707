# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel compare` as a user runs it: recorded on the CPU, replayed on simulated devices with and without faults."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from accel_compare.record import FORWARD, PARAMETER, STEP, read
from accel_core import processes
from accel_core.processes import run_module

ACCEL = run_module("accel_core.cli")
PROGRAMS = Path(__file__).with_name("programs")
#: A guard against a hang.
_LIMIT = 1800


def compare(*arguments: object, sim: str = "", folder: Path = PROGRAMS, **environment: str) -> Any:
    before = (*ACCEL, "sim", sim, "--", *ACCEL) if sim else ACCEL
    return processes.run(
        [*before, "compare", *map(str, arguments)], _LIMIT, cwd=folder, env={**os.environ, **environment}
    )


def first(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "replay" / "compare.json").read_text())["first"]
    return found


def recorded(folder: Path, *program: str, by: str = "module") -> Path:
    done = compare("record", "--by", by, folder, "--", *program)
    assert done.returncode == 0, done.stderr
    assert {*json.loads((folder / "record.json").read_text())["versions"]} == {"torch", "accel-compare"}
    return folder


_RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "collectives.py")
#: Programs whose record several tests replay, by its name; of operations where its name says so.
_RECORDED = {
    "by module": ("train.py", "language"), "by operation": ("train.py", "language"),
    "images by operation": ("train.py", "images"), "collectives": _RANKS,
}  # fmt: skip


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The record of a name, made once."""

    @cache
    def make(name: str) -> Path:
        by = "operation" if name.endswith("by operation") else "module"
        return recorded(tmp_path_factory.mktemp("kept") / "record", *_RECORDED[name], by=by)

    return make


@pytest.fixture
def record(request: pytest.FixtureRequest, kept: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of a record."""
    return Path(shutil.copytree(kept(getattr(request, "param", "by module")), tmp_path / "record"))


@pytest.mark.slow
@pytest.mark.parametrize("sim", ["npu", "hpu", "mps"])
def test_device_without_a_fault_agrees_with_its_dropout_and_initial_parameters(record, sim) -> None:
    done = compare("replay", record, "--", "train.py", "language", sim=sim)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing differs beyond rounding" in done.stdout
    assert "0 only in one run" in done.stdout


def test_fault_is_named_with_its_module_and_step_and_on_the_page(record: Path) -> None:
    # Five layer norms are calls of one forward pass, and their kernel is called once more for each step.
    fault = "native_layer_norm:scale:6"
    done = compare("replay", record, "--", "train.py", "language", sim="npu", FAULT=fault)
    assert done.returncode == 3, done.stdout + done.stderr
    assert first(record)["key"] == {
        "step": 1, "phase": "forward", "where": "LanguageModel.blocks.1.norm1", "name": "LayerNorm", "nth": 0
    }  # fmt: skip
    page = (record / "replay" / "compare.html").read_text()
    assert "step 1, forward, LanguageModel.blocks.1.norm1" in page
    assert "<script" not in page


@pytest.mark.slow
def test_fault_of_the_optimizer_is_named_as_its_step(record: Path) -> None:
    done = compare("replay", record, "--", "train.py", "language", sim="npu", OPTIMIZER_FAULT="1e-4")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "the optimizer's step differs" in done.stdout
    assert first(record)["key"]["step"] == 0


@pytest.mark.parametrize("operator", ["normal_", "addmm"])  # of the initial parameters, and of the model
@pytest.mark.sample("addmm")
def test_only_device_errors_end_recording(tmp_path: Path, operator: str) -> None:
    options = ("--own-draws", "--parameters", "64", tmp_path / "record")
    done = compare("record", *options, "--", "train.py", "language", sim="npu", ACCEL_SIM_FAIL=operator)
    assert done.returncode == 1
    assert f"the current working operator name is aten::{operator}" in done.stderr


@pytest.mark.parametrize("record", ["by operation"], indirect=True)
def test_operation_is_isolated_in_a_program_that_shows_the_fault(record: Path) -> None:
    program = ("--", "train.py", "language")
    done = compare("replay", "--isolate", record, *program, sim="npu", FAULT="_softmax:truncated:0")
    assert done.returncode == 3, done.stdout + done.stderr
    assert first(record)["key"]["name"] == "aten._softmax.default"
    folder = record / "replay" / "isolated"
    program = (folder / "isolate.py").read_text()
    assert "aten._softmax.default" in program
    # The vendor runs it with his kernel: the fault of this test is planted by the program under test.
    alone = processes.run([*ACCEL, "sim", "npu", "--", sys.executable, "isolate.py"], _LIMIT, cwd=folder)
    assert "cpu and npu differ by 0" in alone.stdout, alone.stderr


def ranks(program: str, stage: int) -> tuple[str, ...]:
    """Return the command of two ranks of zero.py."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    return (*ACCEL, "launch", "--num_gpus", "2", "--master_port", port, "zero.py", program, str(stage))


def stages(quick: int) -> Any:
    """The stages of ZeRO with whole and with divided gradients or parameters, of which one is in quick runs."""
    slow = [pytest.param(stage, marks=pytest.mark.slow) for stage in (0, 2, 3) if stage != quick]
    return pytest.mark.parametrize("stage", [quick, *slow])


@pytest.mark.slow
@stages(quick=2)
def test_zero_agrees_and_a_lost_gradient_is_found_at_its_collective(tmp_path: Path, stage: int) -> None:
    program = ranks("language", stage)
    folder = recorded(tmp_path / "record", *program)
    agrees = compare("replay", folder, "--", *program, sim="npu")
    assert agrees.returncode == 0, agrees.stdout + agrees.stderr
    lost = compare("replay", folder, "--", *program, sim="npu", LOST_GRADIENT="1")
    assert lost.returncode == 3, lost.stdout + lost.stderr
    key = first(folder)["key"]
    assert (key["phase"], key["step"]) == ("collective", 1)


@pytest.mark.slow
def test_initial_parameters_of_the_record_are_loaded_unless_asked_not_to(tmp_path: Path) -> None:
    done = compare("record", "--parameters", "1", tmp_path, "--", "train.py", "gated")
    assert done.returncode == 0, done.stderr
    assert "at most 1 MiB" in done.stderr
    assert "initial parameters of Gated are kept" in done.stdout
    replay = ("--", "train.py", "gated")
    done = compare("replay", tmp_path, *replay, sim="npu", INITIAL_SEED="5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "initial parameters of Gated are loaded from the record" in done.stdout
    done = compare("replay", "--own-parameters", tmp_path, *replay, sim="npu", INITIAL_SEED="5")
    assert done.returncode == 3, done.stdout + done.stderr
    assert first(tmp_path)["key"]["step"] == 0


@pytest.mark.slow
@stages(quick=3)
def test_initial_parameters_are_loaded_into_the_copies_of_zero(tmp_path: Path, stage: int) -> None:
    program = ranks("gated", stage)
    done = compare("record", "--parameters", "1", tmp_path, "--", *program)
    assert done.returncode == 0, done.stderr
    done = compare("replay", tmp_path, "--", *program, sim="npu", INITIAL_SEED="5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("initial parameters of DeepSpeedEngine are loaded") == 2


@pytest.mark.slow
def test_generator_that_is_seeded_twice_or_whose_state_is_set_draws_the_same_again(tmp_path: Path) -> None:
    folder = recorded(tmp_path, "generators.py")
    done = compare("replay", folder, "--", "generators.py", sim="npu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 only in one run" in done.stdout


@pytest.mark.slow
def test_two_models_of_a_program_that_leaves_at_once_are_compared(tmp_path: Path) -> None:
    folder = recorded(tmp_path, "leaving.py")
    done = compare("replay", folder, "--", "leaving.py", sim="npu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 only in one run" in done.stdout
    assert "rank 0 of the replay ended before it had written everything" in done.stdout


def test_keyword_inputs_of_a_module_are_recorded(tmp_path: Path) -> None:
    (rank,) = read(recorded(tmp_path, "train.py", "recurrent"))
    shapes = {tuple(one.shape for one in event.inputs) for event in rank.events if event.key.name == "Cell"}
    assert shapes == {((4, 32), (4, 32))}


def test_only_modules_that_were_asked_for_are_recorded(tmp_path: Path) -> None:
    done = compare("record", tmp_path, "--module", "LayerNorm", "--steps", "1", "--", "train.py", "language")
    assert done.returncode == 0, done.stderr
    (rank,) = read(tmp_path)
    assert {event.key.step for event in rank.events} == {1}
    assert {event.key.name for event in rank.events if event.key.phase == FORWARD} == {"LayerNorm", PARAMETER}
    assert {event.key.where.split(".")[-2][:4] for event in rank.events if event.key.phase == STEP} == {
        "norm"
    }


@pytest.mark.slow
@pytest.mark.parametrize("by", ["module", "operation"])
def test_unusual_programs_run_as_they_do_without_the_recorder(tmp_path: Path, by: str) -> None:
    alone = subprocess.run(
        [sys.executable, "unusual.py"], cwd=PROGRAMS, capture_output=True, text=True, timeout=_LIMIT, check=True
    )  # fmt: skip
    kept = tmp_path / "rank_of_results.csv"
    kept.write_text("the user's own")
    done = compare("record", "--by", by, tmp_path, "--", "unusual.py")
    assert done.returncode == 0, done.stderr
    assert alone.stdout in done.stdout
    assert kept.exists()
    assert compare("runs", tmp_path, tmp_path).returncode == 0


of_collectives = pytest.mark.parametrize("record", ["collectives"], indirect=True)


@pytest.mark.slow
@of_collectives
@pytest.mark.parametrize(
    "doubled",
    ["all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single", "all_reduce", "broadcast"],
)
def test_collectives_are_recorded_and_a_wrong_result_is_found(record: Path, doubled: str) -> None:
    done = compare("replay", record, "--", *_RANKS, DOUBLED=doubled)
    assert done.returncode == 3, done.stdout + done.stderr
    assert (first(record)["key"]["name"], first(record)["what"]) == (doubled, "result")


@of_collectives
@pytest.mark.slow
def test_ranks_that_agree_have_no_difference_whatever_their_buffers_held(record: Path) -> None:
    done = compare("replay", record, "--", *_RANKS)
    assert done.returncode == 0, done.stdout + done.stderr


@of_collectives
@pytest.mark.slow
def test_collectives_that_reduce_in_another_way_are_not_the_same_computation(record: Path) -> None:
    done = compare("replay", record, "--", *_RANKS, REDUCTION="MAX")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all_reduce MAX" in (record / "replay" / "compare.json").read_text()


def test_two_records_are_compared_without_running(record: Path, kept: Callable[[str], Path]) -> None:
    done = compare("runs", kept("by module"), record)
    assert done.returncode == 0, done.stderr
    file = record / "rank0.jsonl"
    lines = file.read_text().splitlines()
    at = next(n for n, line in enumerate(lines) if '"shape":[4,16,32]' in line)
    changed = json.loads(lines[at])
    lines[at] = json.dumps(changed | {"projection": changed["projection"] + 1}, separators=(",", ":"))
    file.write_text("\n".join(lines) + "\n")
    done = compare("runs", kept("by module"), record)
    assert done.returncode == 3, done.stderr
    assert "(Embedding)" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("record", "{folder}"), "no program"),
        (("record", "{folder}", "--steps", "x", "--", "train.py"), "--steps x"),
        (("record", "{folder}", "--", "no-such-program"), "FileNotFoundError"),
        (("record", "/proc/nothing", "--", "train.py", "language"), "/proc"),
        (("replay", "{folder}", "--", "train.py", "language"), "files of ranks"),
        (("runs", "{folder}", "{folder}"), "files of ranks"),
    ],
)
@pytest.mark.sample("*no program", "*/proc")
def test_what_cannot_be_compared_is_named(tmp_path: Path, arguments: tuple[str, ...], found: str) -> None:
    done = compare(*(argument.format(folder=tmp_path) for argument in arguments))
    assert done.returncode not in (0, 3)
    assert "ACC-701" in done.stderr
    assert found in done.stderr


def test_program_that_fails_before_it_computes_is_named(tmp_path: Path) -> None:
    done = compare("record", tmp_path / "record", "--", "-m", "no_such_module")
    assert done.returncode == 1
    assert "before anything was recorded" in done.stderr


def test_record_of_another_program_is_refused(record: Path) -> None:
    done = compare("replay", record, "--", "train.py", "images")
    assert "no event that both have" in done.stderr


#: Operators of the device that the programs call, and the kinds of faults that change their results.
_LANGUAGE = (
    "native_layer_norm", "addmm", "gelu", "_softmax", "embedding", "bmm", "_log_softmax", "gelu_backward",
)  # fmt: skip
_IMAGES = ("convolution", "relu")
_KINDS = ("scale", "truncated", "last", "nan", "shifted", "sign")
_FAULTS = [
    pytest.param(record, f"{operator}:{kind}:{number % 3}", id=f"{operator}-{kind}")
    for record, operators in (("by operation", _LANGUAGE), ("images by operation", _IMAGES))
    for operator in operators
    for number, kind in enumerate(_KINDS)
]


@pytest.mark.slow
@pytest.mark.parametrize(("record", "fault"), _FAULTS, indirect=["record"])
def test_planted_fault_of_a_kernel_is_named(record: Path, fault: str) -> None:
    program = "images" if fault.startswith(_IMAGES) else "language"
    done = compare("replay", record, "--", "train.py", program, sim="npu", FAULT=fault)
    assert done.returncode == 3, done.stdout + done.stderr
    assert first(record)["key"]["name"].startswith(f"aten.{fault.partition(':')[0]}.")
