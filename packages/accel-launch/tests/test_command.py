# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The command line: DeepSpeed's options under their names, programs, plans, errors; the port of rank 0."""

import argparse
import contextlib
import os
import shlex
import socket
from pathlib import Path

import pytest

from accel_launch import command, options
from accel_launch.errors import InvalidArguments
from accel_launch.options import Options
from accel_launch.plan import Host, Plan, Program, Rank
from accel_launch.protocol import call_main

LAUNCH = call_main("accel_launch.__main__")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "train", "x.py"):
        Path(name).touch()


def test_dry_run_and_plan_file(tmp_path, root_of, run):
    script = tmp_path / "train.py"
    script.write_text("")
    words = ("--dry_run", "--json", "--bind_cores_to_rank", str(script), "--dry_run")
    done = run(*LAUNCH, *words, ACCEL_SYSROOT=str(root_of("hbm-flat")))
    assert done.returncode == 0, done.stderr
    plan = Plan.from_json(done.stdout)
    assert [rank.cpus[0] for _, rank in plan.ranks()] == [0, 4]
    assert plan.program.arguments == ("--dry_run",)
    (tmp_path / "plan.json").write_text(done.stdout)
    table = run(*LAUNCH, "--dry_run", "--plan", str(tmp_path / "plan.json"))
    assert "4-7,12-15  1     preferred 3  4" in table.stdout, table.stderr


def test_secrets_in_output(tmp_path, run):
    (tmp_path / "train.py").write_text("")
    (tmp_path / ".deepspeed_env").write_text("WANDB_API_KEY=hunter2\nUCX_TLS=tcp\n")
    done = run("sh", "-c", f"{shlex.join(LAUNCH)} --emit sbatch --num_gpus 1 train.py > job.sh")
    assert done.returncode == 0, done.stderr
    assert "this output has what looks like secrets: WANDB_API_KEY\n" in done.stderr
    assert (tmp_path / "job.sh").stat().st_mode & 0o777 == 0o600


# The port of rank 0

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
    return Plan((Host("localhost", 0, (Rank(0, 0, 0),)),), "127.0.0.1", number, Program(("x",)), "/")


def listen(number: int) -> socket.socket:
    """What torch's store does."""
    made = socket.socket(socket.AF_INET6)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("::", number))
    made.listen()
    return made


def test_second_launcher_takes_another_port(default, capfd):
    with (
        command.chosen_port(plan(default), GIVEN) as first,
        command.chosen_port(plan(default), GIVEN) as second,
    ):
        assert first.master_port == default
        assert second.master_port != default
        for number in (first.master_port, second.master_port):
            listen(number).close()
    said = f"accel launch: port {default} is in use, so rank 0 listens on port {second.master_port}\n"
    assert capfd.readouterr() == ("", said)


def test_port_in_use_is_skipped(default, capfd):
    quiet = Options(script="x", quiet=True)
    with listen(default), command.chosen_port(plan(default), quiet) as moved:
        assert moved.master_port != default
    assert capfd.readouterr() == ("", "")
    for _ in range(2):  # It is free again when the job has ended.
        with command.chosen_port(plan(default), GIVEN) as made:
            assert made.master_port == default
    assert command.is_port_free_to_choose(plan(default), GIVEN)
    for given in ({"master_port": 4000}, {"plan": "plan.json", "script": None}):
        assert not command.is_port_free_to_choose(plan(default), Options(**{"script": "x", **given}))  # type: ignore[arg-type]


# Options


def parse(*arguments: str) -> Options:
    parser = argparse.ArgumentParser()
    options.add_arguments(parser)
    return options.parsed(parser.parse_args(arguments))


#: DeepSpeed's options that take a value, and those that do not.
VALUES = {
    "hostfile": "hosts",
    "include": "a@b:0,2",
    "exclude": "c",
    "num_nodes": 2,
    "master_addr": "10.0.0.1",
    "master_port": 29501,
    "node_rank": 1,
    "enable_each_rank_log": "logs",
    "bind_core_list": "0-51,56-107",
    "ssh_port": 2222,
    "venv_script": "bin/activate",
    "log_level": "warning",
}
SWITCHES = ["module", "no_local_rank", "no_ssh", "no_ssh_check", "force_multi", "save_pid"]


def test_options_of_deepspeed(folder):
    words = [f"--{name}={value}" for name, value in VALUES.items()] + [f"--{name}" for name in SWITCHES]
    words += ["--num_gpus", "3", "--launcher", "OpenMPI", "--launcher_args", "-x 'A B' --tag", "train"]
    named = {"launcher": "openmpi", "launcher_args": ("-x", "A B", "--tag"), "num_accelerators": 3}
    assert parse(*words) == Options(script="train", **VALUES, **dict.fromkeys(SWITCHES, True), **named)  # type: ignore[arg-type]
    short = parse("-H", "hosts", "-i", "a", "-e", "b", "x.py")
    assert (short.hostfile, short.include, short.exclude) == ("hosts", "a", "b")


def test_arguments_of_script(folder):
    assert parse("train.py") == Options(script="train.py")
    given = parse("--num_accelerators", "2", "-q", "train.py", "--dry_run", "-H", "--", "--plan=x")
    assert given.arguments == ("--dry_run", "-H", "--", "--plan=x")
    assert (given.num_accelerators, given.dry_run, given.shows_notes, given.binds) == (2, False, False, False)
    for option in ("--bind_cores_to_rank", "--bind_core_list=0-3", "--reserve_cores=1"):
        assert parse(option, "train.py").binds


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("", "no program"),
        ("missing.py", "'missing.py' in"),
        (". --x", "'.' in"),
        ("--plan p.json train.py", "--plan and a program"),
        ("--module --no_python train", "--module and --no_python"),
        ("--json train.py", "--json without --dry_run"),
        ("--master_port 0 train.py", "--master_port 0"),
        ("--reserve_cores -1 train.py", "--reserve_cores -1"),
        ("--no_ssh train.py", "--no_ssh with --node_rank -1"),
        ('--launcher_args "\'open" train.py', "invalid split value"),
        ("'--master_addr=$(reboot)' train.py", "--master_addr '$(reboot)'"),
        ("--num_gpus 0 train.py", "found '0', expected 1 or more"),
        ("--num_nodes two train.py", "found 'two', expected 1 or more"),
        ("--emit k8s train.py", "add --image"),
        ("--emit k8s --image 'x y' train.py", "--image 'x y'"),
        ("--emit k8s --image=x:1 --job_name 'a\nkind: Pod' train.py", "--job_name"),
        ("--emit sbatch --job_name '$(x)' train.py", "--job_name '$(x)'"),
        ("--emit k8s --image=x:1 --resource 'cpu: 1\nx=3' train.py", "--resource 'cpu:"),
        ("--emit sbatch --launcher_args \"'--a\nrm -rf x'\" train.py", "without control characters"),
        ("--enable_each_rank_log= train.py", "--enable_each_rank_log"),
        ("--autotuning tune train.py", "deepspeed --autotuning tune"),
    ],
)
def test_impossible_arguments(words, named, capsys, folder):
    try:
        with pytest.raises(InvalidArguments) as caught:
            parse(*shlex.split(words))
    except SystemExit:
        assert named in capsys.readouterr().err
    else:
        assert named in str(caught.value)
