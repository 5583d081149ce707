# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs as users write them, on each simulated device, compared with the CPU: `python -m benchmarks.programs`."""

from collections.abc import Callable
from dataclasses import dataclass, field

#: A program takes the device's type and returns its losses.
Program = Callable[[str], list[float]]


@dataclass
class Programs:
    """Programs of one kind, by the name in the table."""

    by_name: dict[str, Program] = field(default_factory=dict)

    def __call__(self, name: str) -> Callable[[Program], Program]:
        """Add a program; used as a decorator."""

        def add(program: Program) -> Program:
            self.by_name[name] = program
            return program

        return add
