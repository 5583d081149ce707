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
import subprocess
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from accel_core.isolated import call_main
from accel_launch.errors import HostUnreachable, InvalidArguments
from accel_launch.machine import Accelerator, Machine
from accel_launch.options import Options
from accel_launch.plan import InvalidData, address, is_variable_name

#: Prefixes, beside those of the accelerator.
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
    found = {}
    try:
        with path.open(encoding="utf-8") as file:
            _check_owner(path, os.fstat(file.fileno()), environ)
            text = file.read()
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidArguments):
            raise
        raise _invalid(str(path), str(error)) from error
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not is_variable_name(name.strip()) or "\0" in value:
            raise _invalid(f"{path}:{number}", repr(line[:200]))
        found[name.strip()] = value.strip()
    return found


def _check_owner(path: Path, file: os.stat_result, environ: Mapping[str, str]) -> None:
    """Raise `InvalidArguments` for a file that is found by chance and that another user can write.

    Its variables decide which programs and libraries the ranks run. A file that is named by its full path is meant.
    """
    if environ.get(FILE_VARIABLE) == str(path):
        return
    if file.st_uid not in (0, os.geteuid()) or file.st_mode & stat.S_IWOTH:
        raise InvalidArguments(
            what="the variables for other hosts are not read from a file that another user can write",
            found=f"{path}: owner {file.st_uid}, mode {stat.S_IMODE(file.st_mode):o}; this user is {os.geteuid()}",
            expected="a file of this user, or of root, that not everybody can write",
            do=f"remove or copy it; or name it by its full path in {FILE_VARIABLE}, if you trust it",
        )


def _invalid(where: str, found: str) -> InvalidArguments:
    return InvalidArguments(
        what="cannot read the variables for other hosts",
        found=f"{where}: {found}",
        expected="a line NAME=value for each variable",
        do=f"correct the file, or name another in {FILE_VARIABLE}",
    )


#: Seconds for a connection, and for the whole answer: the other host imports torch.
CONNECT, ANSWER = 10, 120
_AT_ONCE = 64
#: Prints what machine a host is.
_MACHINE = call_main("accel_launch.machine")
#: Reads a script from standard input, whichever shell the user logs in with; bash, for scripts of environments.
_SHELL = "exec sh -c 'exec $(command -v bash || echo sh) -s'"
_Answer = TypeVar("_Answer")


def is_this_host(name: str) -> bool:
    """Whether a host of a hostfile is this machine, by its name or a loopback address."""
    own = socket.gethostname()
    return address(name).casefold() in {
        "localhost",
        "::1",
        own.casefold(),
        own.partition(".")[0].casefold(),
    } or address(name).startswith("127.")


def query_hosts(
    names: Iterable[str], options: Options, directory: str, exports: Mapping[str, str]
) -> dict[str, Machine]:
    """Return the other hosts' machines; raises `HostUnreachable`, which names each host that did not answer."""
    answers = _at_once(names, lambda name: _ask(name, options, directory, exports))
    failed = [f"{name}: {reason}" for name, reason in answers if isinstance(reason, str)]
    if failed:
        raise _unreachable(failed, options)
    return {name: found for name, found in answers if isinstance(found, Machine)}


def _ask(name: str, options: Options, directory: str, exports: Mapping[str, str]) -> Machine | str:
    """Return the machine of a host, or the reason why there are none."""
    # Without the working folder, in which another user may have put modules.
    paths = [path for path in exports.get("PYTHONPATH", "").split(":") if path not in ("", directory)]
    variables = {**exports, "PYTHONPATH": ":".join(paths)}
    done = _run(name, options, remote_command(_MACHINE, options, directory, variables))
    if isinstance(done, str):
        return done
    # A login shell may print a greeting first.
    for line in reversed(done.stdout.splitlines()):
        if done.returncode == 0 and line.startswith("{"):
            try:
                return Machine.from_json(line)
            except InvalidData as error:
                return f"another accel-launch, whose answer is not understood: {error}"
    return _reason(done)


def write_files(paths: Mapping[str, str], options: Options, text: str) -> None:
    """Write a file that only its owner can read on other hosts; raises `HostUnreachable` if a host does not take it.

    paths: by host, of a file that does not exist there. text: base64.
    """
    before, after = "umask 077 && set -C && cat > ", f" <<'ACCEL_FILE'\n{text}\nACCEL_FILE\n"
    for name, done in _at_once(
        paths, lambda name: _run(name, options, before + shlex.quote(paths[name]) + after)
    ):
        reason = done if isinstance(done, str) else _reason(done) if done.returncode else ""
        if reason:
            raise _unreachable([f"{name}: {reason}"], options)


def _run(name: str, options: Options, script: str) -> subprocess.CompletedProcess[str] | str:
    """Run a script on a host; returns why not, if it cannot be run.

    The script goes by standard input: other users can read arguments, here and there.
    """
    try:
        return subprocess.run(
            _command(name, options, _SHELL),
            input=script,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {ANSWER} s"
    except OSError as error:
        return f"cannot run ssh: {error.strerror}"


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    return " / ".join(done.stderr.strip().splitlines()[-2:]) or f"ssh ended with status {done.returncode}"


def _at_once(names: Iterable[str], ask: Callable[[str], _Answer]) -> list[tuple[str, _Answer]]:
    hosts = tuple(names)
    with ThreadPoolExecutor(max_workers=min(len(hosts), _AT_ONCE) or 1) as pool:
        return list(zip(hosts, pool.map(ask, hosts), strict=True))


def _unreachable(failed: list[str], options: Options) -> HostUnreachable:
    return HostUnreachable(
        what="hosts of the job cannot be used",
        found="\n".join(failed[:8] + ([f"and {len(failed) - 8} more"] if len(failed) > 8 else [])),
        expected="ssh without a password, and the same Python with accel-launch, on each host",
        do=f"try: {shlex.join(_command(failed[0].partition(': ')[0], options, 'true'))}",
    )


def remote_command(
    command: Iterable[str], options: Options, directory: str, exports: Mapping[str, str]
) -> str:
    """Return the text for a remote POSIX shell: working folder, virtual environment, variables, command.

    Each word is quoted, so that no value is interpreted.
    """
    parts = [f"cd {shlex.quote(directory)}"]
    if options.venv_script:
        parts.append(f". {shlex.quote(options.venv_script)}")
    # `export` is the shell's own: arguments of `env` would be there for all to read.
    parts += [f"export {name}={shlex.quote(value)}" for name, value in exports.items()]
    parts.append(f"exec {shlex.join(command)} </dev/null")
    return " && ".join(parts)


def _command(name: str, options: Options, script: str) -> list[str]:
    port = ["-p", str(options.ssh_port)] if options.ssh_port is not None else []
    settings = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT}"]
    return ["ssh", *settings, *port, "--", name.replace("[", "").replace("]", ""), script]
