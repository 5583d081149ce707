# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The optimizers that DeepSpeed creates by number, steps, and destroys."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from accel_host.errors import UnknownOptimizer

Options = TypeVar("Options")


class Optimizers(Generic[Options]):
    """Options by the number that DeepSpeed gave; a number created again has the new options, as upstream."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._options: dict[int, Options] = {}
        self._lock = threading.Lock()

    def create(self, number: int, options: Options) -> int:
        """Remember the options."""
        with self._lock:
            self._options[number] = options
        return 0

    def destroy(self, number: int) -> int:
        """Forget them; nothing where there are none, so that a destructor never raises."""
        with self._lock:
            self._options.pop(number, None)
        return 0

    def __getitem__(self, number: int) -> Options:
        try:
            return self._options[number]
        except KeyError:
            known = ", ".join(map(str, sorted(self._options))) or "none"
            raise UnknownOptimizer(
                what=f"{self._name} {number} can not take a step",
                found="it was never created, or is destroyed",
                expected=f"one of those there are: {known}",
                do=f"create_{self._name}({number}, …) first",
            ) from None
