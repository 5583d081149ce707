# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Pictures of a terminal in the documents: each command's own output, as SVG.

python -m ci.pictures    run the commands, and write docs/pictures

Why: a picture that is drawn by hand shows what somebody remembers.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

FOLDER = Path("docs/pictures")
_TRAIN = "examples/train_lm.py --steps 60"
#: File -> what is typed in it, and what the picture has to show; without that it is the end of the command.
COMMANDS = {
    "doctor.svg": ("accel sim npu -- accel doctor", None),
    "launch.svg": (
        f"accel launch --num_accelerators 2 --bind_cores_to_rank {_TRAIN}",
        r"running +[1-9]\d* % .*step [23]\d",
    ),
    "train.svg": (f"python {_TRAIN}", r"training .*step [34]\d"),
}
WIDTH = 96
#: A picture of a moment has the last lines alone.
_LAST = 14
#: What moves a terminal's cursor, and what rich writes to hide it.
_CONTROL = re.compile(r"(\r?\n|\r|\x1b\[\d*[AK]|\x1b\[\?25[lh])")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


def screen(text: str, shows: str | None = None) -> str:
    """Return what a terminal has after this text, or when it first shows a line with the pattern."""
    lines, row, fresh = [""], 0, False
    for part in _CONTROL.split(text):
        if part.startswith("\x1b") and _CONTROL.fullmatch(part):
            if shows and any(re.search(shows, _COLOUR.sub("", line)) for line in lines):
                break
            if part.endswith("A"):
                row = max(row - int(part[2:-1] or 1), 0)
            elif part.endswith("K"):
                lines[row] = ""
        elif part.endswith("\n"):
            row, fresh = row + 1, False
            lines += [""] * (row == len(lines))
        elif part == "\r":
            fresh = True
        elif part:
            lines[row], fresh = part if fresh else lines[row] + part, False
    if shows:
        lines = ["…", *lines[-_LAST:]]
    return "\n".join(lines)


def on_a_terminal(command: str) -> str:
    """Return what a command writes to a terminal of this width, with its colours."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    with subprocess.Popen(
        shlex.split(command), env=environment, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True
    ) as process:
        os.close(theirs)
        read = bytearray()
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            read += part
    os.close(ours)
    print(command, "->", process.returncode)
    return read.decode(errors="replace")


def picture(command: str, text: str) -> str:
    """Return the SVG, which loads nothing from the network and names no path of this machine."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    text = text.replace(str(Path(sys.executable).parent.parent.resolve()), ".venv").replace(
        f"{Path.cwd()}/", ""
    )
    console.print(Text.from_ansi(f"$ {command}\n{text.rstrip()}"))
    drawn = console.export_svg(title="", unique_id="terminal")
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    label = f'role="img" aria-label="{command}"'
    return (
        "\n".join(line.rstrip() for line in drawn.replace("<svg ", f"<svg {label} ", 1).splitlines()) + "\n"
    )


def main() -> int:
    """Write every picture."""
    FOLDER.mkdir(exist_ok=True)
    for name, (command, shows) in COMMANDS.items():
        text = screen(on_a_terminal(command), shows)
        (FOLDER / name).write_text(picture(command, text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
