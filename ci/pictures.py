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
#: File -> what is typed in it.
COMMANDS = {"doctor.svg": "accel sim npu -- accel doctor"}
WIDTH = 96
#: A line that shows progress, and that the command takes away again.
_PROGRESS = re.compile("^[^\n]*[\u2801-\u28ff][^\n]*\n", re.MULTILINE)


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
    return _PROGRESS.sub("", read.decode(errors="replace").replace("\r\n", "\n"))


def picture(command: str, text: str) -> str:
    """Return the SVG, which loads nothing from the network and names no path of this machine."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    prefix = str(Path(sys.executable).parent.parent.resolve())
    console.print(Text.from_ansi(f"$ {command}\n{text.rstrip()}".replace(prefix, ".venv")))
    drawn = console.export_svg(title="", unique_id="terminal")
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    label = f'role="img" aria-label="{command}"'
    return (
        "\n".join(line.rstrip() for line in drawn.replace("<svg ", f"<svg {label} ", 1).splitlines()) + "\n"
    )


def main() -> int:
    """Write every picture."""
    FOLDER.mkdir(exist_ok=True)
    for name, command in COMMANDS.items():
        (FOLDER / name).write_text(picture(command, on_a_terminal(command)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
