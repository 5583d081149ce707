# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The live view: on a terminal, one status line a rank below the output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from accel_core.vendor import format_cpu_list
from accel_launch.plan import Plan
from accel_launch.protocol import Message
from accel_launch.supervisor import View

_MOST_RANKS = 32


@dataclass
class _State:
    host: str
    cores: str
    device: str
    state: str = "starting"
    percent: float = 0.0
    memory: float = 0.0
    last: str = ""


#: Columns in their order, beside the last line.
_COLUMNS: Mapping[str, Callable[[int, _State], str]] = {
    "rank": lambda number, rank: str(number),
    "host": lambda number, rank: rank.host,
    "cores": lambda number, rank: rank.cores,
    "device": lambda number, rank: rank.device,
    "state": lambda number, rank: rank.state,
    "CPU": lambda number, rank: f"{rank.percent:.0f} %",
    "memory": lambda number, rank: f"{rank.memory / 2**30:.1f} GiB",
}
#: Left out where the terminal is too narrow, the last one first; and how wide they may be.
_OPTIONAL, _WIDEST = ("device", "cores", "host"), 24
#: Width below which the last line says too little.
_LAST_LINE = 24


class LiveView(View):
    """Shows output as it comes, and what each rank does below it."""

    def __init__(self, plan: Plan, console: Console | None = None) -> None:
        self._ranks: Mapping[int, _State] = {
            rank.rank: _State(host.name, format_cpu_list(rank.cpus) or "any", rank.device or "-")
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
            rank.state = "running"
        elif message.kind == "status":
            rank.percent, rank.memory = float(values.get("percent", 0)), float(values.get("memory", 0))
            rank.last = str(values.get("last", ""))
        elif message.kind == "end":
            rank.state = f"ended ({values.get('code')})" if values.get("code") else "ended"

    def close(self) -> None:
        """Remove the status lines."""
        self._live.stop()

    def _table(self) -> Table:
        shown = list(self._ranks.items())[:_MOST_RANKS]
        cells = {name: [cell(number, rank) for number, rank in shown] for name, cell in _COLUMNS.items()}
        names, free = _fitting(cells, self._console.width)
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
        table.add_column("last line", no_wrap=True)
        for row, (_, rank) in enumerate(shown):
            last = Text(Text.from_ansi(rank.last).plain)  # without the program's escape sequences
            last.truncate(free, overflow="ellipsis")  # rich would take the room from all columns
            table.add_row(*(Text(cells[name][row]) for name in names), last)
        if len(self._ranks) > _MOST_RANKS:
            more = Text(f"and {len(self._ranks) - _MOST_RANKS} more ranks")
            table.add_row(*("" for _ in names), more)
        return table


def _fitting(cells: Mapping[str, list[str]], width: int) -> tuple[list[str], int]:
    """Return the columns to show, and the width that is left for the last line: optional columns give way to it."""
    natural = {
        name: min(max(len(name), *map(len, column)), _WIDEST if name in _OPTIONAL else width) + 2
        for name, column in cells.items()
    }
    kept = [name for name in cells if name not in _OPTIONAL]
    free = width - sum(natural[name] for name in kept)
    for name in _OPTIONAL:
        if free - natural[name] >= _LAST_LINE:
            kept.append(name)
            free -= natural[name]
    return [name for name in cells if name in kept], max(free, 1)
