# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The options of `accel launch`: those of the `deepspeed` command under their names, and our own."""

from __future__ import annotations

import argparse
import dataclasses
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accel_launch.errors import InvalidArguments
from accel_launch.plan import is_address

#: PyTorch's default for rank 0.
DEFAULT_PORT = 29500
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
EMITS = ("sbatch", "k8s")
_HOSTS, _PROGRAM, _BINDING = "hosts and slots", "program", "binding"
_ENGINE, _PLAN = "how ranks are started", "plan"
#: A label of DNS, which names of Kubernetes objects are; short enough for the names made of it.
_JOB_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,400}")
_RESOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,200}=[0-9]{1,9}(\.[0-9]{1,3})?[A-Za-z]{0,2}")


def _option(group: str, default: Any, text: str | None = None, *names: str, **keywords: Any) -> Any:
    """Return the field of an option. text: its help. names: further ones. keywords: those of argparse."""
    return field(default=default, metadata={"group": group, "names": names, "help": text, **keywords})


def _switch(group: str, text: str, *names: str) -> Any:
    return _option(group, False, text, *names, action="store_true")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected 1 or more; leave the option out for all")
    return int(text)


@dataclass(frozen=True)
class Options:
    """The command line. Each field is an option's name; -1 and None: not given. `script` and `arguments`: the program.

    launcher_args is split as a shell would do it. enable_each_rank_log: folder.
    """

    script: str | None = None
    arguments: tuple[str, ...] = ()

    hostfile: str | None = _option(
        _HOSTS, None, "lines `worker-0 slots=4` (default: /job/hostfile if it exists)", "-H"
    )
    include: str = _option(_HOSTS, "", "use only these: worker-0@worker-1:0,2", "-i", metavar="HOSTS")
    exclude: str = _option(_HOSTS, "", "use all but these", "-e", metavar="HOSTS")
    num_nodes: int = _option(_HOSTS, -1, "use the first N hosts of the hostfile", type=_count, metavar="N")
    num_accelerators: int = _option(
        _HOSTS,
        -1,
        "use the first N slots of each host (default: all devices; on CPUs one rank per NUMA node)",
        "--num_gpus",
        type=_count,
        metavar="N",
    )
    master_addr: str = _option(_HOSTS, "", "address of the first host, as the others know it")
    master_port: int | None = _option(
        _HOSTS,
        None,
        "port for torch.distributed (default: 29500; of a job on this host alone, else the next free one)",
        type=int,
        metavar="PORT",
    )
    node_rank: int = _option(_HOSTS, -1, "position of this host, with --no_ssh", type=int, metavar="N")
    no_ssh: bool = _switch(_HOSTS, "start only this host's ranks; run the command on each host")
    no_ssh_check: bool = _switch(_HOSTS, "do not ask the other hosts for their cores in advance")
    force_multi: bool = _switch(_HOSTS, "use the multi-node launcher for one host, too")

    module: bool = _switch(_PROGRAM, "the script is a module, as for `python -m`")
    no_python: bool = _switch(_PROGRAM, "execute the script itself, without python")
    no_local_rank: bool = _switch(_PROGRAM, "do not pass --local_rank to the script")
    venv_script: str | None = _option(
        _PROGRAM, None, "script that activates the virtual environment on other hosts", metavar="FILE"
    )

    bind_cores_to_rank: bool = _switch(_BINDING, "each rank runs on its own cores")
    bind_core_list: str | None = _option(
        _BINDING, None, "divide only these CPUs among the ranks: 0-51,56-107", metavar="CPUS"
    )
    reserve_cores: int = _option(
        _BINDING, 0, "keep N cores of each NUMA node free, for daemons or I/O threads", type=int, metavar="N"
    )

    launcher: str = _option(
        _ENGINE,
        "",
        "engine: local, pdsh, impi, openmpi, mpich, slurm, or one of another package",
        type=str.lower,
    )
    launcher_args: tuple[str, ...] = _option(
        _ENGINE, (), "arguments for the engine, as one argument", type=shlex.split, metavar="ARGS"
    )
    ssh_port: int | None = _option(_ENGINE, None, "port of ssh on the other hosts", type=int, metavar="PORT")
    save_pid: bool = _switch(_ENGINE, "write the launcher's process id to a file")
    enable_each_rank_log: str | None = _option(
        _ENGINE, None, "write each rank's output to a file in DIR", metavar="DIR"
    )
    autotuning: str = _option(_ENGINE, "", argparse.SUPPRESS)
    log_level: str = _option(_ENGINE, "info", "least level of the messages to show", choices=LOG_LEVELS)
    quiet: bool = _switch(_ENGINE, "the same as --log_level error", "-q")

    dry_run: bool = _switch(_PLAN, "print the plan, and start nothing")
    json: bool = _switch(_PLAN, "with --dry_run: as JSON, for --plan")
    plan: str | None = _option(
        _PLAN, None, "carry out a plan that --dry_run --json printed; - is standard input", metavar="FILE"
    )
    emit: str | None = _option(
        _PLAN,
        None,
        "print the job for a cluster that starts processes itself; k8s is a JobSet",
        choices=EMITS,
    )
    job_name: str = _option(_PLAN, "accel", "with --emit: name of the job", metavar="NAME")
    image: str | None = _option(_PLAN, None, "with --emit k8s: container image")
    resource: tuple[str, ...] = _option(
        _PLAN,
        (),
        "with --emit k8s: limit of each pod, such as cpu=64",
        action="append",
        metavar="NAME=N",
    )

    @property
    def binds(self) -> bool:
        """True if ranks are bound: asked for as such, or by an option that has no other meaning."""
        return self.bind_cores_to_rank or self.bind_core_list is not None or self.reserve_cores > 0

    @property
    def shows_notes(self) -> bool:
        """True if to write notes on standard error."""
        return not self.quiet and LOG_LEVELS.index(self.log_level) <= LOG_LEVELS.index("warning")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    groups: dict[str, Any] = {}
    for item in dataclasses.fields(Options):
        if keywords := dict(item.metadata):
            group, names = keywords.pop("group"), keywords.pop("names")
            target = groups.get(group) or groups.setdefault(group, parser.add_argument_group(group))
            default = list(item.default) if isinstance(item.default, tuple) else item.default
            target.add_argument(*names, f"--{item.name}", dest=item.name, default=default, **keywords)
    parser.add_argument("script", nargs="?", help="the program, followed by its own arguments")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def parsed(args: argparse.Namespace) -> Options:
    """Return the options of parsed arguments; raises `InvalidArguments` for impossible values and contradictions."""
    values: dict[str, Any] = {item.name: getattr(args, item.name) for item in dataclasses.fields(Options)}
    values |= {name: tuple(values[name]) for name in ("arguments", "launcher_args", "resource")}
    made = Options(**values)
    if made.enable_each_rank_log == "None":  # DeepSpeed's default
        made = dataclasses.replace(made, enable_each_rank_log=None)
    for found, expected, do in _faults(made):
        raise InvalidArguments(f"cannot use these arguments: {found}; expected {expected}", do=do)
    return made


def _faults(given: Options) -> Iterator[tuple[str, str, str]]:
    """Yield for each broken rule what is found, what is expected, and what to do."""
    if given.autotuning:
        yield "--autotuning", "options of one job", f"run: deepspeed --autotuning {given.autotuning} …"
    if given.plan is not None and given.script is not None:
        yield "--plan and a program", "one of them", "leave out the program: a plan has its own"
    if given.plan is None and given.script is None:
        yield "no program", "a script with its arguments", "name the script"
    path = Path(given.script or "")
    found_elsewhere = given.script is None or given.module or given.no_python or given.emit is not None
    if not found_elsewhere and not (path.is_file() or (path / "__main__.py").exists()):
        yield (
            f"{given.script!r} in {Path.cwd()}",
            "a Python script, or a folder with __main__.py",
            "correct it",
        )
    if given.module and given.no_python:
        yield "--module and --no_python", "one of them", "leave out --no_python"
    if given.json and not given.dry_run:
        yield "--json without --dry_run", "both", "add --dry_run"
    for option, port in (("--master_port", given.master_port), ("--ssh_port", given.ssh_port)):
        if port is not None and not 0 < port < 65536:
            yield f"{option} {port}", "a port from 1 to 65535", f"correct {option}"
    if given.no_ssh and given.node_rank < 0:
        yield f"--no_ssh with --node_rank {given.node_rank}", "the host's position, from 0", "add --node_rank"
    if given.enable_each_rank_log == "":
        yield "--enable_each_rank_log without a folder", "a folder", "correct --enable_each_rank_log"
    if given.reserve_cores < 0:
        yield f"--reserve_cores {given.reserve_cores}", "0 or more", "give a number of cores"
    if given.master_addr and not is_address(given.master_addr):
        yield f"--master_addr {given.master_addr!r}", "a host name or an address", "correct --master_addr"
    if given.emit is not None:
        yield from _faults_of_emit(given, given.emit)


def _faults_of_emit(given: Options, emit: str) -> Iterator[tuple[str, str, str]]:
    if emit == "k8s" and not _IMAGE.fullmatch(given.image or ""):
        found = f"--emit {emit} with --image {given.image!r:.80}"
        do = "correct --image" if given.image else "add --image"
        yield found, "the container image that has the program", do
    if not _JOB_NAME.fullmatch(given.job_name):
        expected = "lower-case letters, digits and hyphens, at most 40"
        yield f"--job_name {given.job_name!r:.80}", expected, "correct --job_name"
    if emit == "sbatch" and not all(map(str.isprintable, given.launcher_args)):
        expected = "options of sbatch without control characters, such as --partition=cpu"
        yield f"--launcher_args {given.launcher_args!r:.80}", expected, "correct --launcher_args"
    for text in given.resource:
        if not _RESOURCE.fullmatch(text):
            yield f"--resource {text!r:.80}", "NAME=N, such as cpu=64", "correct --resource"
