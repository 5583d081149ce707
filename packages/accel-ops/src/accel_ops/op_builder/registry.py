# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Options of the optimizers that DeepSpeed creates, steps and destroys by an ID."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from accel_ops.errors import UnknownOptimizer

Options = TypeVar("Options")


class OptimizerRegistry(Generic[Options]):
    """Options by DeepSpeed's optimizer ID. An ID that is created again has the new options, as upstream."""

    def __init__(self, name: str) -> None:
        self._name = name
        #: By ID. Replaced items are seen by the library's functions, which read it themselves.
        self.options: dict[int, Options] = {}
        self._lock = threading.Lock()

    def create(self, optimizer_id: int, options: Options) -> int:
        """Store the options; returns 0."""
        with self._lock:
            self.options[optimizer_id] = options
        return 0

    def destroy(self, optimizer_id: int) -> int:
        """Delete the options; returns 0. An unknown ID is no error, so that a destructor never raises."""
        with self._lock:
            self.options.pop(optimizer_id, None)
        return 0

    def __getitem__(self, optimizer_id: int) -> Options:
        try:
            return self.options[optimizer_id]
        except KeyError:
            known = ", ".join(map(str, sorted(self.options))) or "none"
            raise UnknownOptimizer(
                what=f"{self._name} {optimizer_id} cannot take a step",
                found="it was never created, or was destroyed",
                expected=f"one of the existing optimizers: {known}",
                do=f"call create_{self._name}({optimizer_id}, …) first",
            ) from None
