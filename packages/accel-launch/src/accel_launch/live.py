# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The live view: on a terminal, one status line a rank below the output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from accel_core.vendor import format_cpu_list
from accel_launch.plan import Plan
from accel_launch.protocol import Message
from accel_launch.supervisor import View

_MOST_RANKS = 32


#: Left out where the terminal is too narrow, the last one first; and how wide they may be.
_OPTIONAL, _WIDEST = ("device", "cores", "host"), 24
#: The last column, and the width below which it says too little.
_LAST, _LEAST = "last line", 24


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
                _LAST: "",
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
        # What a program writes is no markup; colours of its own stay.
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
            rank[_LAST] = str(values.get("last", ""))
        elif message.kind == "end":
            rank["state"] = f"ended ({values.get('code')})" if values.get("code") else "ended"

    def close(self) -> None:
        """Remove the status lines."""
        self._live.stop()

    def _table(self) -> Table:
        shown = list(self._ranks.values())[:_MOST_RANKS]
        names, free = _fitting(shown, self._console.width)
        table = Table(box=None, header_style="dim", pad_edge=False)
        for name in names:
            right = name in ("rank", "CPU", "memory")
            table.add_column(
                name,
                justify="right" if right else "left",
                no_wrap=True,
                overflow="ellipsis",
                max_width=_WIDEST if name in _OPTIONAL else None,
            )
        table.add_column(_LAST, no_wrap=True)
        for rank in shown:
            last = Text(Text.from_ansi(rank[_LAST]).plain)  # without the program's escape sequences
            last.truncate(free, overflow="ellipsis")  # rich would take the room from all columns
            table.add_row(*(Text(rank[name]) for name in names), last)
        if len(self._ranks) > _MOST_RANKS:
            more = Text(f"and {len(self._ranks) - _MOST_RANKS} more ranks")
            table.add_row(*("" for _ in names), more)
        return table


def _fitting(ranks: Sequence[Mapping[str, str]], width: int) -> tuple[list[str], int]:
    """Return the columns to show, and the width that is left for the last line: optional columns give way to it."""
    names = [name for name in ranks[0] if name != _LAST]
    natural = {name: max(len(name), *(len(rank[name]) for rank in ranks)) + 2 for name in names}
    free = width - sum(natural[name] for name in names if name not in _OPTIONAL)
    for name in _OPTIONAL:
        if free - min(natural[name], _WIDEST + 2) >= _LEAST:
            free -= min(natural[name], _WIDEST + 2)
        else:
            names.remove(name)
    return names, max(free, 1)
