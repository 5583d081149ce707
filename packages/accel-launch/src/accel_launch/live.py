# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The live view: on a terminal, one status line a rank below the output."""

from __future__ import annotations

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from accel_core.vendor import format_cpu_list
from accel_launch.plan import Plan
from accel_launch.protocol import Message
from accel_launch.supervisor import View

_MOST_RANKS = 32
_COLUMNS = ("rank", "host", "cores", "device", "state", "CPU", "memory", "last line")
#: Left out on a terminal of less than 100 columns.
_OPTIONAL = ("host", "cores", "device")


class LiveView(View):
    """Shows output as it comes, and what each rank does below it."""

    def __init__(self, plan: Plan, console: Console | None = None) -> None:
        #: What is shown of each rank, by column.
        self._ranks = {
            rank.rank: {
                "rank": str(rank.rank),
                "host": host.name,
                "cores": format_cpu_list(rank.cpus) or "any",
                "device": rank.device or "-",
                "state": "starting",
                "CPU": "0 %",
                "memory": "0.0 GiB",
                "last line": "",
            }
            for host, rank in plan.ranks()
        }
        self._console = console or Console()
        # Guards send their status once a second.
        self._live = Live(
            console=self._console, refresh_per_second=2, transient=True, get_renderable=self._table
        )
        self._live.start()

    def line(self, target: int, line: bytes) -> None:
        """Show a line above the status lines. A terminal shows both outputs in one place."""
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        # A program's output is not markup; its own colours stay.
        self._console.print(Text.from_ansi(text.rpartition("\r")[2]), soft_wrap=True)

    def message(self, message: Message) -> None:
        """Note what a guard said."""
        rank, values = self._ranks.get(message.rank), message.values
        if rank is None:
            return
        if message.kind == "start":
            rank["state"] = "running"
        elif message.kind == "status":
            rank["CPU"] = f"{float(values.get('percent', 0)):.0f} %"
            rank["memory"] = f"{float(values.get('memory', 0)) / 2**30:.1f} GiB"
            rank["last line"] = str(values.get("last", ""))
        elif message.kind == "end":
            rank["state"] = f"ended ({values.get('code')})" if values.get("code") else "ended"

    def close(self) -> None:
        """Remove the status lines."""
        self._live.stop()

    def _table(self) -> Table:
        narrow = self._console.width < 100
        names = [name for name in _COLUMNS if not (narrow and name in _OPTIONAL)]
        table = Table(box=None, header_style="dim", pad_edge=False, expand=True)
        for name in names:
            right = name in ("rank", "CPU", "memory")
            table.add_column(
                name,
                justify="right" if right else "left",
                no_wrap=True,
                overflow="ellipsis",
                max_width=24 if name in _OPTIONAL else None,
                ratio=1 if name == _COLUMNS[-1] else None,
            )
        for rank in list(self._ranks.values())[:_MOST_RANKS]:
            # Without the program's escape sequences.
            table.add_row(*(Text(Text.from_ansi(rank[name]).plain) for name in names))
        if len(self._ranks) > _MOST_RANKS:
            table.add_row(*("" for _ in names[1:]), Text(f"and {len(self._ranks) - _MOST_RANKS} more ranks"))
        return table
