# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The command line: DeepSpeed's options under their names, and what is refused."""

from __future__ import annotations

import argparse

import pytest

from accel_launch import options
from accel_launch.errors import InvalidArguments
from accel_launch.options import Options


def parse(*arguments: str) -> Options:
    parser = argparse.ArgumentParser()
    options.add_arguments(parser)
    return options.parsed(parser.parse_args(arguments))


DEEPSPEED = (
    *("-H", "hosts", "-i", "a@b:0,2", "-e", "c", "--num_nodes", "2", "--num_gpus", "3"),
    *("--master_addr", "10.0.0.1", "--master_port", "29501", "--node_rank", "1", "--launcher", "OpenMPI"),
    *("--launcher_args", "-x 'A B' --tag", "--module", "--no_local_rank", "--no_ssh", "--no_ssh_check"),
    *("--force_multi", "--save_pid", "--enable_each_rank_log", "logs", "--bind_cores_to_rank"),
    *("--bind_core_list", "0-51,56-107", "--ssh_port", "2222", "--venv_script", "bin/activate"),
    *("--elastic_training", "--min_elastic_nodes", "1", "--max_elastic_nodes", "4"),
    *("--log_level", "warning", "train", "--num_gpus", "8", "-q", "--", "rest"),
)


def test_every_option_of_the_deepspeed_command_is_known_by_its_name() -> None:
    assert parse(*DEEPSPEED) == Options(
        script="train",
        arguments=("--num_gpus", "8", "-q", "--", "rest"),
        hostfile="hosts",
        include="a@b:0,2",
        exclude="c",
        num_nodes=2,
        num_accelerators=3,
        master_addr="10.0.0.1",
        master_port=29501,
        node_rank=1,
        launcher="openmpi",
        launcher_args=("-x", "A B", "--tag"),
        module=True,
        no_local_rank=True,
        no_ssh=True,
        no_ssh_check=True,
        force_multi=True,
        save_pid=True,
        enable_each_rank_log="logs",
        bind_cores_to_rank=True,
        bind_core_list="0-51,56-107",
        ssh_port=2222,
        venv_script="bin/activate",
        elastic_training=True,
        min_elastic_nodes=1,
        max_elastic_nodes=4,
        log_level="warning",
    )


def test_without_options_nothing_is_given() -> None:
    assert parse("train.py") == Options(script="train.py")


def test_arguments_after_the_script_are_the_script_s() -> None:
    given = parse("--num_accelerators", "2", "-q", "train.py", "--dry_run", "-H", "--", "--plan=x")
    assert given.arguments == ("--dry_run", "-H", "--", "--plan=x")
    assert (given.num_accelerators, given.dry_run, given.log_level) == (2, False, "error")


@pytest.mark.parametrize("option", ["--bind_cores_to_rank", "--bind_core_list=0-3", "--reserve_cores=1"])
def test_options_that_bind(option: str) -> None:
    assert parse(option, "train.py").binds
    assert not parse("train.py").binds


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "no program"),
        (("--plan", "p.json", "train.py"), "--plan and a program"),
        (("--module", "--no_python", "train"), "--module and --no_python"),
        (("--json", "train.py"), "--json without --dry_run"),
        (("--master_port", "0", "train.py"), "--master_port 0"),
        (("--master_port", "65536", "train.py"), "--master_port 65536"),
        (("--ssh_port", "-1", "train.py"), "--ssh_port -1"),
        (("--reserve_cores", "-1", "train.py"), "--reserve_cores -1"),
        (("--no_ssh", "train.py"), "--no_ssh with --node_rank -1"),
        (("--launcher_args", "'open", "train.py"), "closing quotation"),
        (("--master_addr", "-x", "train.py"), "--master_addr"),
        (("--master_addr=$(reboot)", "train.py"), "--master_addr '$(reboot)'"),
        *(
            ((option, number, "train.py"), f"found '{number}', expected 1 or more")
            for option in ("--num_accelerators", "--num_gpus", "--num_nodes")
            for number in ("0", "-1", "two")
        ),
        (("--emit", "k8s", "train.py"), "add --image"),
        (("--autotuning", "tune", "train.py"), "--autotuning"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(
    arguments: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        with pytest.raises(InvalidArguments) as caught:
            parse(*arguments)
    except SystemExit:
        assert named in capsys.readouterr().err
    else:
        assert named.lower() in str(caught.value).lower()
