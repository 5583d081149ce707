# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel compare` as a user runs it: recorded on the CPU, replayed on simulated devices with and without faults."""

import json
import os
import shutil
import socket
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


def compare(*arguments: object, status: int = 0, sim: str = "", **environment: str) -> Any:
    """Run the command, which has to end with this status."""
    before = (*ACCEL, "sim", sim, "--", *ACCEL) if sim else ACCEL
    done = processes.run(
        [*before, "compare", *map(str, arguments)], _LIMIT, cwd=PROGRAMS, env={**os.environ, **environment}
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


TRAINING = ("--", "train.py")
#: Of a replay that finds a difference.
DIFFERS = 3


def first(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "replay" / "compare.json").read_text())["first"]
    return found


def recorded(folder: Path, *program: str, by: str = "module") -> Path:
    compare("record", "--by", by, folder, "--", *program)
    assert {*json.loads((folder / "record.json").read_text())["versions"]} == {"torch", "accel-compare"}
    return folder


_RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "collectives.py")
#: Programs whose record several tests replay, by its name; of operations where its name says so.
_RECORDED = {
    "by module": ("train.py",), "by operation": ("train.py",), "collectives": _RANKS,
}  # fmt: skip


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The record of a name, made once."""

    @cache
    def make(name: str) -> Path:
        by = "operation" if name == "by operation" else "module"
        return recorded(tmp_path_factory.mktemp("kept") / "record", *_RECORDED[name], by=by)

    return make


@pytest.fixture
def record(request: pytest.FixtureRequest, kept: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of a record."""
    return Path(shutil.copytree(kept(getattr(request, "param", "by module")), tmp_path / "record"))


@pytest.mark.slow
@pytest.mark.parametrize("sim", ["npu", "hpu", "mps"])
def test_device_without_a_fault_agrees_with_its_dropout_and_initial_parameters(record, sim) -> None:
    done = compare("replay", record, *TRAINING, sim=sim)
    assert "nothing differs beyond rounding" in done.stdout
    assert "0 only in one run" in done.stdout


def test_fault_is_named_with_its_module_and_step(record: Path) -> None:
    # Five layer norms are calls of one forward pass, and their kernel is called once more for each step.
    compare("replay", record, *TRAINING, status=DIFFERS, sim="npu", FAULT="native_layer_norm:scale:6")
    assert first(record)["key"] == {
        "step": 1, "phase": "forward", "where": "LanguageModel.blocks.1.norm1", "name": "LayerNorm", "nth": 0
    }  # fmt: skip


@pytest.mark.parametrize("operator", ["normal_", "addmm"])  # of the initial parameters, and of the model
@pytest.mark.sample("addmm")
def test_only_device_errors_end_recording(tmp_path: Path, operator: str) -> None:
    options = ("--own-draws", "--parameters", "64", tmp_path / "record")
    done = compare("record", *options, *TRAINING, status=1, sim="npu", ACCEL_SIM_FAIL=operator)
    assert f"the current working operator name is aten::{operator}" in done.stderr


@pytest.mark.parametrize("record", ["by operation"], indirect=True)
def test_operation_is_isolated_in_a_program_that_shows_the_fault(record: Path) -> None:
    fault = "_softmax:truncated:0"
    compare("replay", "--isolate", record, *TRAINING, status=DIFFERS, sim="npu", FAULT=fault)
    assert first(record)["key"]["name"] == "aten._softmax.default"
    folder = record / "replay" / "isolated"
    assert "aten._softmax.default" in (folder / "isolate.py").read_text()
    # The vendor runs it with his kernel: the fault of this test is planted by the program under test.
    alone = processes.run([*ACCEL, "sim", "npu", "--", sys.executable, "isolate.py"], _LIMIT, cwd=folder)
    assert "cpu and npu differ by 0" in alone.stdout, alone.stderr


@pytest.mark.slow
@pytest.mark.parametrize("stage", [0, 2, 3], ids=["whole", "divided gradients", "divided parameters"])
def test_zero_loads_parameters_and_a_lost_gradient_is_found_at_its_collective(tmp_path, stage) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = ("launch", "--num_gpus", "2", "--master_port", str(port))
    program = ("--", *ACCEL, *launch, "zero.py", str(stage))
    compare("record", "--parameters", "1", tmp_path, *program)
    done = compare("replay", tmp_path, *program, sim="npu", INITIAL_SEED="5")
    assert done.stdout.count("initial parameters of DeepSpeedEngine are loaded") == 2
    compare("replay", tmp_path, *program, status=DIFFERS, sim="npu", LOST_GRADIENT="1")
    key = first(tmp_path)["key"]
    assert (key["phase"], key["step"]) == ("collective", 1)


@pytest.mark.slow
def test_initial_parameters_of_the_record_are_loaded_unless_asked_not_to(tmp_path: Path) -> None:
    done = compare("record", "--parameters", "1", tmp_path, *TRAINING)
    assert "initial parameters of LanguageModel are kept" in done.stdout
    done = compare("replay", tmp_path, *TRAINING, sim="npu", INITIAL_SEED="5")
    assert "initial parameters of LanguageModel are loaded from the record" in done.stdout
    own = ("--own-parameters", tmp_path, *TRAINING)
    compare("replay", *own, status=DIFFERS, sim="npu", INITIAL_SEED="5")
    assert first(tmp_path)["key"]["step"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("program", ["generators.py", "leaving.py"])
def test_generators_and_programs_that_leave_at_once_agree(tmp_path: Path, program: str) -> None:
    done = compare("replay", recorded(tmp_path, program), "--", program, sim="npu")
    assert "0 only in one run" in done.stdout


def test_keyword_inputs_of_a_module_are_recorded(kept: Callable[[str], Path]) -> None:
    (rank,) = read(kept("by module"))
    events = [event for event in rank.events if (event.key.phase, event.key.name) == (FORWARD, "Attention")]
    assert {tuple(one.shape for one in event.inputs) for event in events} == {((4, 16, 32), (16, 16))}


def test_only_modules_that_were_asked_for_are_recorded(tmp_path: Path) -> None:
    compare("record", tmp_path, "--module", "LayerNorm", "--steps", "1", *TRAINING)
    (rank,) = read(tmp_path)
    assert {event.key.step for event in rank.events} == {1}
    assert {event.key.name for event in rank.events if event.key.phase == FORWARD} == {"LayerNorm", PARAMETER}
    assert {event.key.where.split(".")[-2][:4] for event in rank.events if event.key.phase == STEP} == {
        "norm"
    }


@pytest.mark.slow
@pytest.mark.parametrize("by", ["module", "operation"])
def test_unusual_programs_run_as_they_do_without_the_recorder(tmp_path: Path, by: str) -> None:
    alone = processes.run([sys.executable, "unusual.py"], _LIMIT, cwd=PROGRAMS)
    assert alone.returncode == 0, alone.stderr
    own = tmp_path / "rank_of_results.csv"
    own.write_text("the user's own")
    done = compare("record", "--by", by, tmp_path, "--", "unusual.py")
    assert alone.stdout in done.stdout
    assert own.exists()
    compare("runs", tmp_path, tmp_path)


of_collectives = pytest.mark.parametrize("record", ["collectives"], indirect=True)


@pytest.mark.slow
@of_collectives
@pytest.mark.parametrize(
    "doubled",
    ["all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single", "all_reduce", "broadcast"],
)
def test_collectives_are_recorded_and_a_wrong_result_is_found(record: Path, doubled: str) -> None:
    compare("replay", record, "--", *_RANKS, status=DIFFERS, DOUBLED=doubled)
    assert (first(record)["key"]["name"], first(record)["what"]) == (doubled, "result")


@of_collectives
@pytest.mark.slow
@pytest.mark.parametrize("reduction", ["SUM", "MAX"])
def test_collectives_agree_whatever_their_buffers_held(record: Path, reduction: str) -> None:
    compare("replay", record, "--", *_RANKS, REDUCTION=reduction)
    # One that reduces in another way is not the same computation.
    assert ("all_reduce MAX" in (record / "replay" / "compare.json").read_text()) is (reduction == "MAX")


def test_two_records_are_compared_without_running(record: Path, kept: Callable[[str], Path]) -> None:
    compare("runs", kept("by module"), record)
    file = record / "rank0.jsonl"
    lines = file.read_text().splitlines()
    at = next(n for n, line in enumerate(lines) if '"shape":[4,16,32]' in line)
    changed = json.loads(lines[at])
    lines[at] = json.dumps(changed | {"projection": changed["projection"] + 1}, separators=(",", ":"))
    file.write_text("\n".join(lines) + "\n")
    assert "(Embedding)" in compare("runs", kept("by module"), record, status=DIFFERS).stdout


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("record", "{folder}"), "no program"),
        (("record", "{folder}", "--steps", "x", "--", "train.py"), "--steps x"),
        (("record", "{folder}", "--", "no-such-program"), "FileNotFoundError"),
        (("record", "/proc/nothing", *TRAINING), "/proc"),
        (("replay", "{folder}", *TRAINING), "files of ranks"),
        (("runs", "{folder}", "{folder}"), "files of ranks"),
    ],
)
@pytest.mark.sample("*no program", "*/proc")
def test_what_cannot_be_compared_is_named(tmp_path: Path, arguments: tuple[str, ...], found: str) -> None:
    done = compare(*(argument.format(folder=tmp_path) for argument in arguments), status=1)
    assert "ACC-701" in done.stderr
    assert found in done.stderr


def test_run_without_a_record_is_named(tmp_path: Path) -> None:
    done = compare("record", tmp_path / "record", "--", "-m", "no_such_module", status=1)
    assert "before anything was recorded" in done.stderr
    done = compare("record", tmp_path, *TRAINING, status=1, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in done.stderr


def test_record_of_another_program_is_refused(record: Path) -> None:
    done = compare("replay", record, "--", "generators.py", status=1)
    assert "no event that both have" in done.stderr


#: Operators of the device that the program calls, and the kinds of faults that change their results.
_OPERATORS = (
    "native_layer_norm", "addmm", "gelu", "_softmax", "embedding", "bmm", "_log_softmax", "gelu_backward",
)  # fmt: skip
_FAULTS = [
    f"{operator}:{kind}:{number}"
    for operator in _OPERATORS
    for number, kind in enumerate(("scale", "truncated", "nan"))
]


@pytest.mark.slow
@pytest.mark.parametrize("record", ["by operation"], indirect=True)
@pytest.mark.parametrize("fault", _FAULTS)
def test_planted_fault_of_a_kernel_is_named(record: Path, fault: str) -> None:
    compare("replay", record, *TRAINING, status=DIFFERS, sim="npu", FAULT=fault)
    assert first(record)["key"]["name"].startswith(f"aten.{fault.partition(':')[0]}.")
