# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The facts of each host of a job. Other hosts are asked by ssh, all at once, each for a bounded time."""

from __future__ import annotations

import shlex
import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from accel_core.launch import entry
from accel_core.launch.codec import InvalidData
from accel_core.launch.errors import HostUnreachable
from accel_core.launch.facts import Facts
from accel_core.launch.names import address
from accel_core.launch.options import Options

#: Seconds for a connection, and for the whole answer: the other host imports torch.
CONNECT, ANSWER = 10, 120
_AT_ONCE = 64
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


def remote(
    names: Iterable[str], options: Options, directory: str, exports: Mapping[str, str]
) -> dict[str, Facts]:
    """Return the facts of other hosts; raises `HostUnreachable`, which names each host that did not answer."""
    answers = _at_once(names, lambda name: _ask(name, options, directory, exports))
    failed = [f"{name}: {reason}" for name, reason in answers if isinstance(reason, str)]
    if failed:
        raise _unreachable(failed, options)
    return {name: facts for name, facts in answers if isinstance(facts, Facts)}


def _ask(name: str, options: Options, directory: str, exports: Mapping[str, str]) -> Facts | str:
    """Return the facts of a host, or the reason why there are none."""
    # Without the working folder, in which another user may have put modules.
    paths = [path for path in exports.get("PYTHONPATH", "").split(":") if path not in ("", directory)]
    variables = {**exports, "PYTHONPATH": ":".join(paths)}
    done = _run(name, options, remote_command(entry.FACTS, options, directory, variables))
    if isinstance(done, str):
        return done
    # A login shell may print a greeting first.
    for line in reversed(done.stdout.splitlines()):
        if done.returncode == 0 and line.startswith("{"):
            try:
                return Facts.from_json(line)
            except InvalidData as error:
                return f"another accel-core, whose answer is not understood: {error}"
    return _reason(done)


def write(paths: Mapping[str, str], options: Options, text: str) -> None:
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
        expected="ssh without a password, and the same Python with accel-core, on each host",
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
