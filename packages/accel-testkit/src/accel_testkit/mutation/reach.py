# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Which lines of some files are executed, in this process and in the Python processes that it starts."""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

#: Where started processes leave their lines, and the files they watch; only set in the processes of a run.
_VARIABLE = "ACCEL_MUTATION_REACH"
#: On the PYTHONPATH of started processes: its sitecustomize calls `in_started_process`.
_STARTED = Path(__file__).parent / "started"

#: File and number of a line; the number of a function's first line, negative, once it has returned.
Line = tuple[str, int]


class Reach:
    """Records executed lines of files whose paths begin with one of `places`."""

    def __init__(self, places: Sequence[str]) -> None:
        self.places = tuple(places)
        self.lines: set[Line] = set()
        self._watched: dict[str, bool] = {}
        self._raising: set[FrameType] = set()

    def start(self) -> None:
        """Record from now on, in all threads started from now on."""
        threading.settrace(self._call)
        sys.settrace(self._call)

    def take(self) -> set[Line]:
        """Return the lines since the last call."""
        lines, self.lines = self.lines, set()
        return lines

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        if name not in self._watched:
            self._watched[name] = name.startswith(self.places)
        return self._line if self._watched[name] else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if event == "line":
            self._raising.discard(frame)
            self.lines.add((code.co_filename, frame.f_lineno))
        elif event == "exception":
            self._raising.add(frame)
        elif frame in self._raising:
            # Python calls it a return, too.
            self._raising.discard(frame)
        else:
            self.lines.add((code.co_filename, -code.co_firstlineno))
        return self._line


def watch_started(folder: Path, places: Sequence[str]) -> None:
    """Make processes that this one starts write their lines into a folder when they end."""
    os.environ[_VARIABLE] = json.dumps([str(folder), list(places)])
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(_STARTED), os.environ.get("PYTHONPATH", "")])
    )


def take_started(folder: Path) -> set[Line]:
    """Return the lines of the processes that have ended since the last call."""
    lines: set[Line] = set()
    for file in folder.glob("*.json"):
        lines.update((name, number) for name, number in json.loads(file.read_text(encoding="utf-8")))
        file.unlink()
    return lines


def in_started_process() -> None:
    """Record in a process that a watched one has started."""
    wanted = os.environ.get(_VARIABLE)
    if not wanted:
        return
    folder, places = json.loads(wanted)
    reach = Reach(places)

    def write() -> None:
        sys.settrace(None)
        part = Path(folder, f"{os.getpid()}.part")
        part.write_text(json.dumps(sorted(reach.lines)), encoding="utf-8")
        part.replace(part.with_suffix(".json"))

    atexit.register(write)
    reach.start()
