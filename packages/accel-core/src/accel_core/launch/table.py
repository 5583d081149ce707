# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A plan as a table for people."""

from __future__ import annotations

import io
import shlex

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from accel_core.launch.plan import Host, Plan, Rank
from accel_core.vendor import format_cpu_list

#: Wide enough for every row: a list of CPUs that is cut off says nothing.
_WIDTH = 10_000


def render(plan: Plan) -> str:
    """Return the plan as text: the program, a row for each rank, unused cores, notes."""
    table = Table(box=None, pad_edge=False)
    for column in ("rank", "host", "local", "device", "cores", "CPUs", "NUMA", "memory", "threads"):
        table.add_column(
            column, no_wrap=True, justify="right" if column in ("rank", "local", "cores") else "left"
        )
    for host, rank in plan.ranks():
        table.add_row(*(escape(cell) for cell in _row(host, rank)))
    stream = io.StringIO()
    Console(file=stream, width=_WIDTH, highlight=False).print(table)
    rows = "\n".join(line.rstrip() for line in stream.getvalue().splitlines())
    program = shlex.join((*plan.program.command, *plan.program.arguments))
    lines = [
        f"{program}",
        f"ranks: {plan.world_size}, hosts: {len(plan.hosts)}, master: {plan.master_addr} port {plan.master_port}",
        "",
        rows,
        "",
        *_reserved(plan),
        *(f"note: {note}" for note in plan.notes),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _row(host: Host, rank: Rank) -> tuple[str, ...]:
    if host.bound_here:
        cells = ("", "", "decided on the host", "", "", "")
    else:
        policy = rank.memory
        memory = f"{policy.mode} {format_cpu_list(policy.nodes)}".strip()
        cells = (
            rank.device,
            str(rank.cores or ""),
            format_cpu_list(rank.cpus) or "not bound",
            format_cpu_list(rank.numa_nodes),
            memory,
            rank.environment.get("OMP_NUM_THREADS", ""),
        )
    return (str(rank.rank), host.name, str(rank.local_rank), *cells)


def _reserved(plan: Plan) -> list[str]:
    return [
        f"reserved on {host.name}: CPUs {format_cpu_list(host.reserved)}"
        for host in plan.hosts
        if host.reserved
    ]
