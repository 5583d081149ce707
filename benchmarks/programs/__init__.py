# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs as users write them, on each simulated device, compared with the CPU: `python -m benchmarks.programs`."""

from collections.abc import Callable

#: A program takes the device's type and returns its losses.
Program = Callable[[str], list[float]]


class Programs(dict[str, Program]):
    """Programs of one kind, by the name in the table."""

    def __call__(self, name: str) -> Callable[[Program], Program]:
        """Add a program; used as a decorator."""
        return lambda program: self.setdefault(name, program)
