# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The options of `accel launch`: those of the `deepspeed` command under their names, and our own."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from accel_launch.errors import InvalidArguments
from accel_launch.plan import is_address

#: PyTorch's default for rank 0.
DEFAULT_PORT = 29500
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
EMITS = ("sbatch", "k8s", "pytorchjob", "ray")
#: Formats whose program runs in a container image.
IN_CONTAINERS = ("k8s", "pytorchjob")


@dataclass(frozen=True)
class Options:
    """The command line. Each field is an option's name; -1 and None: not given. `script` and `arguments`: the program.

    launcher_args is split as a shell would do it. enable_each_rank_log: folder.
    """

    script: str | None = None
    arguments: tuple[str, ...] = ()
    hostfile: str | None = None
    include: str = ""
    exclude: str = ""
    num_nodes: int = -1
    num_accelerators: int = -1
    master_addr: str = ""
    master_port: int | None = None
    node_rank: int = -1
    launcher: str = ""
    launcher_args: tuple[str, ...] = ()
    module: bool = False
    no_python: bool = False
    no_local_rank: bool = False
    no_ssh: bool = False
    no_ssh_check: bool = False
    force_multi: bool = False
    save_pid: bool = False
    enable_each_rank_log: str | None = None
    bind_cores_to_rank: bool = False
    bind_core_list: str | None = None
    reserve_cores: int = 0
    ssh_port: int | None = None
    venv_script: str | None = None
    elastic_training: bool = False
    min_elastic_nodes: int = -1
    max_elastic_nodes: int = -1
    log_level: str = "info"
    quiet: bool = False
    dry_run: bool = False
    json: bool = False
    plan: str | None = None
    emit: str | None = None
    job_name: str = "accel"
    image: str | None = None
    resource: tuple[str, ...] = ()

    @property
    def binds(self) -> bool:
        """Whether ranks are bound: asked for as such, or by an option that has no other meaning."""
        return self.bind_cores_to_rank or self.bind_core_list is not None or self.reserve_cores > 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    _add_hosts(parser)
    _add_program(parser)
    _add_binding(parser)
    _add_engine(parser)
    group = parser.add_argument_group("plan")
    group.add_argument("--dry_run", action="store_true", help="print the plan, and start nothing")
    group.add_argument("--json", action="store_true", help="with --dry_run: as JSON, for --plan")
    group.add_argument(
        "--plan", metavar="FILE", help="carry out a plan that --dry_run --json printed; - is standard input"
    )
    group.add_argument(
        "--emit",
        choices=EMITS,
        help="print the job for a cluster that starts processes itself; k8s is a JobSet",
    )
    group.add_argument("--job_name", default="accel", metavar="NAME", help="with --emit: name of the job")
    group.add_argument("--image", help="with --emit k8s, pytorchjob: container image")
    group.add_argument(
        "--resource",
        action="append",
        default=[],
        metavar="NAME=N",
        help="with --emit k8s, pytorchjob: limit of each pod, such as cpu=64; with ray: of each rank",
    )
    parser.add_argument("script", nargs="?", help="the program, followed by its own arguments")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _add_hosts(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("hosts and slots")
    add = group.add_argument
    add("-H", "--hostfile", help="lines `worker-0 slots=4` (default: /job/hostfile if it exists)")
    add("-i", "--include", default="", metavar="HOSTS", help="use only these: worker-0@worker-1:0,2")
    add("-e", "--exclude", default="", metavar="HOSTS", help="use all but these")
    add("--num_nodes", type=_number, default=-1, metavar="N", help="use the first N hosts of the hostfile")
    add(
        "--num_gpus",
        "--num_accelerators",
        dest="num_accelerators",
        type=_number,
        default=-1,
        metavar="N",
        help="use the first N slots of each host (default: all devices; on CPUs one rank per NUMA node)",
    )
    add("--master_addr", default="", help="address of the first host, as the others know it")
    add("--master_port", type=int, metavar="PORT", help="port for torch.distributed (default: 29500)")
    add("--node_rank", type=int, default=-1, metavar="N", help="position of this host, with --no_ssh")
    add("--no_ssh", action="store_true", help="start only this host's ranks; run the command on each host")
    add("--no_ssh_check", action="store_true", help="do not ask the other hosts for their cores in advance")
    add("--force_multi", action="store_true", help="use the multi-node launcher for one host, too")


def _add_program(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("program")
    add = group.add_argument
    add("--module", action="store_true", help="the script is a module, as for `python -m`")
    add("--no_python", action="store_true", help="execute the script itself, without python")
    add("--no_local_rank", action="store_true", help="do not pass --local_rank to the script")
    add("--venv_script", metavar="FILE", help="script that activates the virtual environment on other hosts")


def _add_binding(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("binding")
    add = group.add_argument
    add("--bind_cores_to_rank", action="store_true", help="each rank runs on cores of its own")
    add("--bind_core_list", metavar="CPUS", help="divide only these CPUs among the ranks: 0-51,56-107")
    add(
        "--reserve_cores",
        type=int,
        default=0,
        metavar="N",
        help="keep N cores of each NUMA node free, for daemons or I/O threads",
    )


def _add_engine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how ranks are started")
    add = group.add_argument
    add(
        "--launcher",
        default="",
        help="engine: local, pdsh, impi, openmpi, mpich, slurm, or one of another package",
    )
    add("--launcher_args", default="", metavar="ARGS", help="arguments for the engine, as one argument")
    add("--ssh_port", type=int, metavar="PORT")
    add("--save_pid", action="store_true", help="write the launcher's process id to a file")
    add("--enable_each_rank_log", metavar="DIR", help="write each rank's output to a file in DIR")
    add("--elastic_training", action="store_true", help="restart with the hosts that are left")
    add("--min_elastic_nodes", type=int, default=-1, metavar="N")
    add("--max_elastic_nodes", type=int, default=-1, metavar="N")
    add("--autotuning", action=_Unavailable, help=argparse.SUPPRESS)
    add("--log_level", choices=LOG_LEVELS, default="info")
    add("-q", "--quiet", action="store_true", help="the same as --log_level error")


def _number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected 1 or more; leave the option out for all")
    return number


class _Unavailable(argparse.Action):
    """An option of the `deepspeed` command that has no counterpart here."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: object) -> None:
        parser.error(f"{self.option_strings[0]}: only the `deepspeed` command has it")


def parsed(args: argparse.Namespace) -> Options:
    """Return the options of parsed arguments; raises `InvalidArguments`."""
    values = {field.name: getattr(args, field.name) for field in dataclasses.fields(Options)}
    values["arguments"], values["resource"] = tuple(values["arguments"]), tuple(values["resource"])
    values["launcher"] = values["launcher"].lower()
    values["log_level"] = "error" if values["quiet"] else values["log_level"]
    if values["enable_each_rank_log"] == "None":  # DeepSpeed's default
        values["enable_each_rank_log"] = None
    try:
        values["launcher_args"] = tuple(shlex.split(values["launcher_args"]))
    except ValueError as error:
        raise InvalidArguments(
            what="cannot split --launcher_args",
            found=f"{values['launcher_args']!r}: {error}",
            expected="arguments quoted as for a shell",
            do="close the quotation",
        ) from error
    made = Options(**values)
    _check(made)
    return made


def _check(given: Options) -> None:
    for broken, found, expected, do in (*_contradictions(given), *_values(given)):
        if broken:
            raise InvalidArguments(what="cannot use these arguments", found=found, expected=expected, do=do)


#: Whether a rule is broken; what is found, expected, and to be done then.
_Rule = tuple[bool, str, str, str]


def _contradictions(given: Options) -> Iterator[_Rule]:
    program, plan = given.script is not None, given.plan is not None
    yield plan and program, "--plan and a program", "one of them", "leave out the program: a plan has its own"
    yield not plan and not program, "no program", "a script with its arguments", "name the script"
    yield given.module and given.no_python, "--module and --no_python", "one of them", "leave out --no_python"
    yield given.json and not given.dry_run, "--json without --dry_run", "both", "add --dry_run"
    yield (
        given.emit in IN_CONTAINERS and not given.image,
        f"--emit {given.emit} without --image",
        "the container image that has the program",
        "add --image",
    )
    yield (
        given.no_ssh and given.node_rank < 0,
        f"--no_ssh with --node_rank {given.node_rank}",
        "the position of this host, from 0",
        "add --node_rank",
    )


def _values(given: Options) -> Iterator[_Rule]:
    for option, port in (("--master_port", given.master_port), ("--ssh_port", given.ssh_port)):
        yield (
            port is not None and not 0 < port < 65536,
            f"{option} {port}",
            "a port from 1 to 65535",
            f"correct {option}",
        )
    yield (
        given.reserve_cores < 0,
        f"--reserve_cores {given.reserve_cores}",
        "0 or more",
        "give a number of cores",
    )
    yield (
        given.master_addr != "" and not is_address(given.master_addr),
        f"--master_addr {given.master_addr!r}",
        "a host name or an address",
        "correct --master_addr",
    )
