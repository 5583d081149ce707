# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Other hosts of a job: which variables they get, what machines they are, and files for them.

They are asked by ssh, all at once, each for a bounded time.
"""

from __future__ import annotations

import os
import shlex
import socket
import stat
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import TimeoutExpired

from accel_core import processes
from accel_core.data import InvalidData
from accel_launch.errors import HostUnreachable, InvalidArguments
from accel_launch.machine import Accelerator, Machine
from accel_launch.options import Options
from accel_launch.plan import address, is_loopback, is_variable_name
from accel_launch.protocol import call_main

#: Prefixes, in addition to those of the accelerator.
PREFIXES = ("MLFLOW", "PYTHON", "MV2", "UCX", "ACCEL_", "DS_ACCELERATOR")
#: Names the file with further variables, `NAME=value` in each line; looked for in the home and the working folder.
FILE_VARIABLE, FILE = "DS_ENV_FILE", ".deepspeed_env"


def exported_variables(
    environ: Mapping[str, str], accelerator: Accelerator, directory: str, files: Iterable[Path]
) -> dict[str, str]:
    """Return the variables for other hosts; raises `InvalidArguments` for a line of a file.

    directory: where the program runs; it comes first in PYTHONPATH, unless empty.
    """
    starts = (*PREFIXES, *accelerator.exports)
    found = {
        name: value
        for name, value in environ.items()
        # Which devices are visible here says nothing about other hosts.
        if name.startswith(starts)
        and is_variable_name(name)
        and name not in accelerator.visible
        and "_VISIBLE_" not in name
    }
    if directory:
        found["PYTHONPATH"] = ":".join(filter(None, (directory, environ.get("PYTHONPATH"))))
    for path in files:
        if path.is_file():
            found.update(_read(path, environ))
    return dict(sorted(found.items()))


def variable_files(environ: Mapping[str, str], home: Path, directory: Path) -> tuple[Path, ...]:
    """Return where a file with variables may be, the more important one last."""
    name = environ.get(FILE_VARIABLE) or FILE
    return home / name, directory / name


def _read(path: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a file; raises `InvalidArguments`.

    Its variables decide which programs and libraries the ranks run. So a file that is found by chance may not be one
    that another user can write. One that is named by its full path is meant.
    """
    found: dict[str, str] = {}
    where, wrong = str(path), ""
    try:
        with path.open(encoding="utf-8") as file:
            status, text = os.fstat(file.fileno()), file.read()
    except (OSError, ValueError) as error:
        wrong, text = str(error), ""
    else:
        owned = status.st_uid in (0, os.geteuid()) and not status.st_mode & stat.S_IWOTH
        if not owned and environ.get(FILE_VARIABLE) != str(path):
            raise InvalidArguments(
                f"the variables for other hosts are not read from a file that another user can write: {path}: "
                f"owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):o}; this user is {os.geteuid()}",
                do=f"remove or copy it; or name it by its full path in {FILE_VARIABLE}, if you trust it",
            )
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not is_variable_name(name.strip()) or "\0" in value:
            where, wrong = f"{path}:{number}", repr(line[:200])
            break
        found[name.strip()] = value.strip()
    if wrong:
        raise InvalidArguments(
            f"cannot read the variables for other hosts: {where}: {wrong}; expected a line NAME=value for "
            "each variable",
            do=f"correct the file, or name another in {FILE_VARIABLE}",
        )
    return found


#: Seconds for a connection, and for the whole answer: the other host imports torch.
CONNECT, ANSWER = 10, 120
_AT_ONCE = 64
#: Prints what machine a host is.
_MACHINE = call_main("accel_launch.machine")
#: Reads a script from standard input, whichever shell the user logs in with; bash, for scripts of environments.
_SHELL = "exec sh -c 'exec $(command -v bash || echo sh) -s'"


def is_this_host(name: str) -> bool:
    """True if a host of a hostfile is this machine, by its name or a loopback address."""
    own = socket.gethostname().casefold()
    return is_loopback(name) or address(name).casefold() in (own, own.partition(".")[0])


def query_hosts(
    names: Iterable[str], options: Options, directory: str, exports: Mapping[str, str]
) -> dict[str, Machine]:
    """Return the other hosts' machines; raises `HostUnreachable`, which names each host that did not answer."""
    # Without the working folder, in which another user may have put modules.
    paths = [path for path in exports.get("PYTHONPATH", "").split(":") if path not in ("", directory)]
    variables = {**exports, "PYTHONPATH": ":".join(paths)}
    script = f"{remote_command(_MACHINE, options, directory, variables)} </dev/null"
    machines: dict[str, Machine] = {}
    failed: list[str] = []
    for name, (text, reason) in _run(dict.fromkeys(names, script), options).items():
        # A login shell may print a greeting first.
        line = next((line for line in reversed(text.splitlines()) if line.startswith("{")), "")
        try:
            if not reason:
                machines[name] = Machine.from_json(line)
        except InvalidData as error:
            reason = f"another accel-launch, whose answer is not understood: {error}"
        if reason:
            failed.append(f"{name}: {reason}")
    if failed:
        raise _unreachable(failed, options)
    return machines


def write_files(paths: Mapping[str, str], options: Options, text: str) -> None:
    """Write a file that only its owner can read on other hosts; raises `HostUnreachable` if a host does not take it.

    paths: by host, of a file that does not exist there. text: base64.
    """
    scripts = {
        name: f"umask 077 && set -C && cat > {shlex.quote(path)} <<'ACCEL_FILE'\n{text}\nACCEL_FILE\n"
        for name, path in paths.items()
    }
    if failed := [f"{name}: {reason}" for name, (_, reason) in _run(scripts, options).items() if reason]:
        raise _unreachable(failed, options)


def _run(scripts: Mapping[str, str], options: Options) -> dict[str, tuple[str, str]]:
    """Run a script on each host; returns by host what it printed, and why it failed, empty if it did not.

    The scripts go by standard input: other users can read arguments, here and there.
    """

    def run(name: str) -> tuple[str, str]:
        try:
            done = processes.run(_command(name, options, _SHELL), ANSWER, input=scripts[name])
        except TimeoutExpired:
            return "", f"no answer within {ANSWER} s"
        except OSError as error:
            return "", f"cannot run ssh: {error.strerror}"
        said = " / ".join(done.stderr.strip().splitlines()[-2:]) or f"ssh ended with status {done.returncode}"
        return done.stdout, said if done.returncode else ""

    with ThreadPoolExecutor(max_workers=min(len(scripts), _AT_ONCE) or 1) as pool:
        return dict(zip(scripts, pool.map(run, scripts), strict=True))


def _unreachable(failed: list[str], options: Options) -> HostUnreachable:
    return HostUnreachable(
        "hosts of the job cannot be used: each needs ssh without a password, and the same Python with accel-launch",
        do=f"try: {shlex.join(_command(failed[0].partition(': ')[0], options, 'true'))}",
        details="\n".join(failed[:8] + ([f"and {len(failed) - 8} more"] if len(failed) > 8 else [])),
    )


def remote_command(
    command: Iterable[str], options: Options, directory: str, exports: Mapping[str, str]
) -> str:
    """Return the text for a remote POSIX shell: working folder (empty: home), virtual environment, variables, command.

    Each word is quoted, so that no value is interpreted.
    """
    parts = [f"cd {shlex.quote(directory)}"] if directory else []
    if options.venv_script:
        parts.append(f". {shlex.quote(options.venv_script)}")
    # `export` is the shell's own: arguments of `env` would be there for all to read.
    parts += [f"export {name}={shlex.quote(value)}" for name, value in exports.items()]
    parts.append(f"exec {shlex.join(command)}")
    return " && ".join(parts)


def _command(name: str, options: Options, script: str) -> list[str]:
    port = ["-p", str(options.ssh_port)] if options.ssh_port is not None else []
    settings = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT}"]
    return ["ssh", *settings, *port, "--", name.replace("[", "").replace("]", ""), script]
