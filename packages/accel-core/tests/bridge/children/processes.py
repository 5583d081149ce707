# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Importing this records every process that is started from then on, by Python's audit events."""

import sys

_EVENTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.spawn", "os.system")
#: One line an event: its name, and the command where it has one.
started: list[str] = []


def _record(event: str, arguments: tuple[object, ...]) -> None:
    if event in _EVENTS:
        command = arguments[1] if event == "subprocess.Popen" else arguments
        words = command if isinstance(command, list) else [command]
        started.append(" ".join([event, *map(str, words)]))


sys.addaudithook(_record)
