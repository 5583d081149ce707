# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The command line: programs, plans, errors; the port of rank 0."""

import contextlib
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from accel_core.cli import main
from accel_core.isolated import call_main
from accel_launch import command
from accel_launch.options import Options
from accel_launch.plan import Host, Plan, Program, Rank


def launch(*arguments: str, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*call_main("accel_launch.__main__"), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=cwd,
        env={**os.environ, "DS_ACCELERATOR": "cpu", **environ},
    )


def test_a_plan_is_printed_for_the_machine_of_sysroot_and_replayed(
    tmp_path: Path, root_of: Callable[[str], Path]
) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    options = ("--dry_run", "--json", "--bind_cores_to_rank", str(script), "--dry_run")
    done = launch(*options, ACCEL_SYSROOT=str(root_of("hbm-flat")))
    assert done.returncode == 0, done.stderr
    plan = Plan.from_json(done.stdout)
    assert [rank.cpus[0] for _, rank in plan.ranks()] == [0, 4]
    assert plan.program.arguments == ("--dry_run",)
    (tmp_path / "plan.json").write_text(done.stdout)
    table = launch("--dry_run", "--plan", str(tmp_path / "plan.json"))
    assert "4-7,12-15  1     preferred 3  4" in table.stdout, table.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "name the script"),
        ("missing.py", "[ACC-608]"),
        ("-H missing train.py", "[ACC-602]"),
        ("--num_nodes 2 train.py", "[ACC-603]"),
        ("--bind_core_list 3-1 train.py", "[ACC-604]"),
        ("--plan train.py", "[ACC-605]"),
        ("--emit k8s --num_accelerators 2 train.py", "[ACC-608]"),
    ],
)
def test_errors_have_a_code_and_status_1(
    arguments: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    assert main.main(["launch", *arguments.split()]) == 1
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.out == ""


def test_secrets_are_named_before_they_are_written_and_the_file_is_private(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / ".deepspeed_env").write_text("WANDB_API_KEY=hunter2\nUCX_TLS=tcp\n")
    launch = shlex.join(call_main("accel_launch.__main__"))
    done = subprocess.run(
        ["sh", "-c", f"{launch} --emit sbatch --num_gpus 1 train.py > job.sh"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        check=True,
        env={**os.environ, "DS_ACCELERATOR": "cpu"},
    )
    assert "this output has what looks like secrets: WANDB_API_KEY\n" in done.stderr
    assert (tmp_path / "job.sh").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("option", "warned"), [("--quiet", False), ("--dry_run", True)])
def test_the_warning_of_a_cpu_is_the_ranks_and_not_the_launchers(
    option: str, warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "idle.py").write_text("")
    monkeypatch.delenv("DS_ACCELERATOR", raising=False)
    done = subprocess.run(
        [sys.executable, "-m", "accel_launch", "--num_accelerators", "1", option, str(tmp_path / "idle.py")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ("Setting accelerator to CPU" in done.stderr) == warned, done.stderr


GIVEN = Options(script="x")


@pytest.fixture
def default(monkeypatch: pytest.MonkeyPatch) -> int:
    """A default port of the tests: other jobs of this machine use the real one."""
    # One of those that the system gives nobody who asks for any; processes begin to look at different ones.
    for number in range(20_000 + os.getpid() % 10_000, 32_000):
        with contextlib.suppress(OSError), socket.socket() as trial:
            trial.bind(("", number))
            break
    monkeypatch.setattr(command, "DEFAULT_PORT", number)
    monkeypatch.setattr(command, "_TRIED", range(number, number + 1))
    return number


def plan(number: int) -> Plan:
    rank = Rank(0, 0, 0, environment={"MASTER_PORT": str(number)})
    return Plan((Host("localhost", 0, (rank,)),), "127.0.0.1", number, Program(("x",)), "/")


def listen(number: int) -> socket.socket:
    """What torch's store does."""
    made = socket.socket(socket.AF_INET6)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("::", number))
    made.listen()
    return made


def test_the_second_launcher_takes_another_port_before_the_first_rank_listens(
    default: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with (
        command.chosen_port(plan(default), GIVEN) as first,
        command.chosen_port(plan(default), GIVEN) as second,
    ):
        assert first.master_port == default
        assert second.master_port != default
        assert second.hosts[0].ranks[0].environment["MASTER_PORT"] == str(second.master_port)
        for number in (first.master_port, second.master_port):
            listen(number).close()
    said = f"accel launch: port {default} is in use, so rank 0 listens on port {second.master_port}\n"
    assert capfd.readouterr() == ("", said)


def test_a_port_where_somebody_listens_is_passed_over_without_a_word_if_quiet(
    default: int, capfd: pytest.CaptureFixture[str]
) -> None:
    quiet = Options(script="x", quiet=True)
    with listen(default), command.chosen_port(plan(default), quiet) as moved:
        assert moved.master_port != default
    assert capfd.readouterr() == ("", "")
    for _ in range(2):  # It is free again when the job has ended.
        with command.chosen_port(plan(default), GIVEN) as made:
            assert made.master_port == default


@pytest.mark.parametrize(
    "given",
    [{"master_port": 4000}, {"plan": "plan.json", "script": None}, {"elastic_training": True}],
    ids=["--master_port", "--plan", "--elastic_training"],
)
def test_a_port_that_somebody_has_named_stays(default: int, given: dict[str, object]) -> None:
    assert command.is_port_free_to_choose(plan(default), GIVEN)
    assert not command.is_port_free_to_choose(plan(default), Options(**{"script": "x", **given}))  # type: ignore[arg-type]
