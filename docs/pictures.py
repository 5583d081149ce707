# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`python docs/pictures.py`, in the environment of `make demo`: writes the pictures of the README.

`_static/doctor.svg` shows `accel sim npu -- accel doctor`, `_static/demo.svg` the lines of `make demo` in their order,
with pauses of at most 0.4 s.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

_FOLDER = Path(__file__).with_name("_static")
_WIDTH = 100
_PAUSE = 0.4
_APPEAR = """
@keyframes appear { from { visibility: hidden; } to { visibility: visible; } }
text[style] { animation: appear 0.01s both; }
@media (prefers-reduced-motion: reduce) { text[style] { animation: none; } }
</style>"""
DEMO = "accel launch --num_accelerators 2 --bind_cores_to_rank examples/train_lm.py --out runs/picture"


def printed(command: str, **variables: str) -> list[tuple[float, str]]:
    """Return the lines that a command prints, each with the seconds after which it came; pauses are shortened."""
    environment = {**os.environ, "COLUMNS": str(_WIDTH), "PYTHONUNBUFFERED": "1", **variables}
    process = subprocess.Popen(command.split(), env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines, passed, last = [(0.0, f"\x1b[1m$ {command}\x1b[0m")], _PAUSE, time.monotonic()
    for line in process.stdout:
        now = time.monotonic()
        passed, last = passed + min(now - last, _PAUSE), now
        if not re.search(r"so far$|validating: \d+%$", line.rstrip()):
            lines.append((passed, line.rstrip("\n").replace(str(Path.cwd()), "~/accel")))
    assert process.wait() == 0
    return lines


def picture(name: str, lines: list[tuple[float, str]], moving: bool = False) -> None:
    """Write an SVG without a font from the network; in a moving one each line appears in its time."""
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True)
    times: list[float] = []
    for seconds, line in lines:
        wrapped = Text.from_ansi(line).wrap(console, _WIDTH) or [Text()]
        times += [seconds] * len(wrapped)
        console.print(*wrapped, sep="\n")
    svg = console.export_svg(title="accel", theme=MONOKAI, unique_id=name)
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    if moving:
        svg = svg.replace("</style>", _APPEAR, 1)
        svg = re.sub(
            rf'(<text [^>]*clip-path="url\(#{name}-line-(\d+)\)")',
            lambda found: f'{found[1]} style="animation-delay: {times[int(found[2])]:.1f}s"',
            svg,
        )
    (_FOLDER / f"{name}.svg").write_text(re.sub(r"[ \t]+\n", "\n", svg), encoding="utf-8")


if __name__ == "__main__":
    picture("doctor", printed("accel sim npu -- accel doctor", FORCE_COLOR="1"))
    picture("demo", printed(DEMO), moving=True)
