# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A sign of life on a terminal while a command imports torch or waits for child processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console


@contextlib.contextmanager
def working(on: str, quiet: bool = False) -> Iterator[None]:
    """Show what the command is working on. On standard error, which is a terminal in `accel doctor | less`, too."""
    console = Console(stderr=True, highlight=False)
    with console.status(on) if console.is_terminal and not quiet else contextlib.nullcontext():
        yield
