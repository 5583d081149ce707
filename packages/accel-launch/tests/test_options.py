# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The command line: DeepSpeed's options under their names, and what is refused."""

import argparse
import shlex

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


def test_arguments_after_the_script_are_the_script_s() -> None:
    assert parse("train.py") == Options(script="train.py")
    given = parse("--num_accelerators", "2", "-q", "train.py", "--dry_run", "-H", "--", "--plan=x")
    assert given.arguments == ("--dry_run", "-H", "--", "--plan=x")
    assert (given.num_accelerators, given.dry_run, given.shows_notes) == (2, False, False)


@pytest.mark.parametrize("option", ["--bind_cores_to_rank", "--bind_core_list=0-3", "--reserve_cores=1"])
def test_options_that_bind(option: str) -> None:
    assert parse(option, "train.py").binds
    assert not parse("train.py").binds


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("", "no program"),
        ("--plan p.json train.py", "--plan and a program"),
        ("--module --no_python train", "--module and --no_python"),
        ("--json train.py", "--json without --dry_run"),
        ("--master_port 0 train.py", "--master_port 0"),
        ("--master_port 65536 train.py", "--master_port 65536"),
        ("--ssh_port -1 train.py", "--ssh_port -1"),
        ("--reserve_cores -1 train.py", "--reserve_cores -1"),
        ("--no_ssh train.py", "--no_ssh with --node_rank -1"),
        ('--launcher_args "\'open" train.py', "No closing quotation"),
        ("--master_addr -x train.py", "--master_addr"),
        ("'--master_addr=$(reboot)' train.py", "--master_addr '$(reboot)'"),
        *(
            (f"{option} {number} train.py", f"found '{number}', expected 1 or more")
            for option in ("--num_gpus", "--num_nodes")
            for number in ("0", "-1", "two")
        ),
        ("--emit k8s train.py", "add --image"),
        ("--emit k8s --image 'x y' train.py", "--image 'x y'"),
        ("--emit k8s --image=x:1 --job_name 'a\nkind: Pod' train.py", "--job_name"),
        ("--emit k8s --image=x:1 --job_name Upper train.py", "--job_name 'Upper'"),
        ("--emit sbatch --job_name '$(x)' train.py", "--job_name '$(x)'"),
        ("--emit k8s --image=x:1 --resource cpu train.py", "--resource 'cpu'"),
        ("--emit k8s --image=x:1 --resource 'cpu: 1\nx=3' train.py", "--resource 'cpu:"),
        ("--emit ray --resource memory=8Gi train.py", "without a unit"),
        ("--emit sbatch --launcher_args \"'--a\nrm -rf x'\" train.py", "without control characters"),
        ("--autotuning tune train.py", "--autotuning"),
    ],
)
def test_what_cannot_be_used_is_named(options: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        with pytest.raises(InvalidArguments) as caught:
            parse(*shlex.split(options))
    except SystemExit:
        assert named in capsys.readouterr().err
    else:
        assert named in str(caught.value)
