# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The facts of each host of a job. Other hosts are asked by ssh, all at once, each for a bounded time."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from accel_core.launch.codec import InvalidData
from accel_core.launch.errors import HostUnreachable
from accel_core.launch.facts import Facts
from accel_core.launch.names import address
from accel_core.launch.options import Options

#: Seconds for a connection, and for the whole answer: the other host imports torch.
CONNECT, ANSWER = 10, 120
_AT_ONCE = 64


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
    hosts = tuple(names)
    with ThreadPoolExecutor(max_workers=min(len(hosts), _AT_ONCE) or 1) as pool:
        answers = list(pool.map(lambda name: _ask(name, options, directory, exports), hosts))
    failed = [f"{name}: {text}" for name, text in zip(hosts, answers, strict=True) if isinstance(text, str)]
    if failed:
        raise HostUnreachable(
            what="hosts of the job cannot be used",
            found="\n".join(failed[:8] + ([f"and {len(failed) - 8} more"] if len(failed) > 8 else [])),
            expected="ssh without a password, and the same Python with accel-core, on each host",
            do=f"try: {shlex.join(_command(failed[0].partition(': ')[0], options, 'true'))}",
        )
    return {name: facts for name, facts in zip(hosts, answers, strict=True) if isinstance(facts, Facts)}


def _ask(name: str, options: Options, directory: str, exports: Mapping[str, str]) -> Facts | str:
    """Return the facts of a host, or the reason why there are none."""
    script = remote_command((sys.executable, "-m", "accel_core.launch.facts"), options, directory, exports)
    try:
        done = subprocess.run(
            _command(name, options, script),
            stdin=subprocess.DEVNULL,
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
    # A login shell may print a greeting first.
    for line in reversed(done.stdout.splitlines()):
        if done.returncode == 0 and line.startswith("{"):
            try:
                return Facts.from_json(line)
            except InvalidData as error:
                return f"another accel-core, whose answer is not understood: {error}"
    return " / ".join(done.stderr.strip().splitlines()[-2:]) or f"ssh ended with status {done.returncode}"


def remote_command(
    command: Iterable[str], options: Options, directory: str, exports: Mapping[str, str]
) -> str:
    """Return the text for a remote POSIX shell: working folder, virtual environment, variables, command.

    Each word is quoted, so that no value is interpreted.
    """
    assignments = [f"{name}={value}" for name, value in exports.items()]
    parts = [f"cd {shlex.quote(directory)}"]
    if options.venv_script:
        parts.append(f". {shlex.quote(options.venv_script)}")
    parts.append(f"exec env {shlex.join([*assignments, *command])}")
    return " && ".join(parts)


def _command(name: str, options: Options, script: str) -> list[str]:
    port = ["-p", str(options.ssh_port)] if options.ssh_port is not None else []
    settings = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT}"]
    return ["ssh", *settings, *port, "--", name.replace("[", "").replace("]", ""), script]
