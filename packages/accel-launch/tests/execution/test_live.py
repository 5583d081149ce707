# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The live view: one line a rank on a terminal, nothing of it elsewhere."""

import io
import os
import re
import subprocess

import pytest
from rich.console import Console

from accel_launch.live import LiveView
from accel_launch.protocol import Message


def shown(view: LiveView, width: int = 120) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(view._table())
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def test_each_rank_has_a_line_with_what_its_guard_said(make) -> None:
    view = LiveView(make(["x"], cpus=(0, 1, 5)), Console(file=io.StringIO(), force_terminal=True, width=120))
    view.message(Message("start", 1, {"pid": 5}))
    view.message(
        Message("status", 1, {"percent": 198.4, "memory": 3 * 2**30, "last": "\x1b[2Jstep\x1b[31m 7 [bold]"})
    )
    view.message(Message("end", 0, {"code": -9}))
    view.message(Message("start", 99, {}))
    view.close()
    assert shown(view)[1:] == [
        "0 localhost 0-1,5 - ended (-9) 0 % 0.0 GiB",
        "1 localhost 0-1,5 - running 198 % 3.0 GiB step 7 [bold]",
    ]


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (60, "rank state CPU memory last line"),
        (80, "rank host device state CPU memory last line"),
        (120, "rank host cores device state CPU memory last line"),
    ],
)
def test_a_narrow_terminal_shows_fewer_columns_and_none_of_them_cut(make, width: int, columns: str) -> None:
    cpus = (*range(48), *range(96, 144), 150, 152, 154)
    plan = make(["x"], cpus=cpus, hosts=["worker-0", "worker-1"])
    view = LiveView(plan, Console(file=io.StringIO(), force_terminal=True, width=width))
    for rank in range(4):
        view.message(Message("start", rank, {"pid": 5}))
        view.message(
            Message(
                "status", rank, {"percent": 4797.6, "memory": 99 * 2**30, "last": "step 1200 loss 2.125 " * 4}
            )
        )
    view.close()
    header, *rows = shown(view, width)
    assert header == columns
    for row in rows:
        assert "running" in row
        assert "4798 % 99.0 GiB step 1200 loss 2.125" in row


def test_output_on_a_terminal_is_followed_by_status_lines_which_do_not_stay(start) -> None:
    ours, theirs = os.openpty()
    launch = start(
        'echo "[red]word[/red] $RANK"; until [ -e go ]; do sleep 0.05; done',
        environment={"TERM": "xterm", "COLUMNS": "120"},
        terminal=theirs,
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            seen += os.read(ours, 4096)
        except OSError:  # Linux's answer when the other end is closed
            break
        if b"[red]word[/red] 0" in seen and re.search(rb"1\s+localhost\s+any\s+-\s+running", seen):
            (launch.folder / "go").touch()
    os.close(ours)
    assert launch.process.wait() == 0
    text = seen.decode()
    assert "\x1b[2K" in text.rpartition("running")[2], "the lines are erased at the end"


def test_output_that_is_no_terminal_is_the_ranks_only(start) -> None:
    launch = start("echo word; sleep 1.5", ranks=1, environment={"TERM": "xterm"}, stdin=subprocess.DEVNULL)
    assert launch.wait() == 0
    assert (launch.out, launch.err) == ("word\n", "")
