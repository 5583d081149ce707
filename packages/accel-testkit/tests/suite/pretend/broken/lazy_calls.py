# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Callbacks of `lazy_call` that are never called, or not each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accel_good.accelerator import GOOD_Accelerator

from broken import breaks, broken

broken("LazyCallForgets", "streams.lazy_call_calls", lazy_call=lambda self, callback: None)


@breaks("streams.lazy_call_calls")
class LazyCallCallsTwice(GOOD_Accelerator):
    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        callback()
        return callback()


@breaks("streams.lazy_call_calls")
class LazyCallsAreMadeOnce(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self._called: set[Callable[[], Any]] = set()

    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        if callback not in self._called:
            self._called.add(callback)
            return super().lazy_call(callback)
        return None
