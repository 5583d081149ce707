# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Times of one generated text: of its tokens, and of the collectives in it."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from deepspeed import comm
from deepspeed.accelerator import get_accelerator


class Clock:
    """Measures, as a context, the reductions with which AutoTP ends a divided layer; waiting for other ranks counts.

    tokens: when each token was there, in seconds from the start. spent: seconds in collectives. calls: their number.
    """

    def __init__(self) -> None:
        self.tokens: list[float] = []
        self.spent, self.calls, self.seconds = 0.0, 0, 0.0

    def __enter__(self) -> Clock:
        self._stock = comm.inference_all_reduce
        comm.inference_all_reduce = self._measured
        self._start = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._start
        comm.inference_all_reduce = self._stock

    def tick(self) -> None:
        """Another token is there."""
        self.tokens.append(time.perf_counter() - self._start)

    def _measured(self, *args: Any, **kwargs: Any) -> Any:
        get_accelerator().synchronize()  # what was launched before is not the collective's time
        start = time.perf_counter()
        result = self._stock(*args, **kwargs)
        get_accelerator().synchronize()
        self.spent += time.perf_counter() - start
        self.calls += 1
        return result

    def figures(self) -> dict[str, float]:
        """Return the report of a run."""
        return {
            "tokens": len(self.tokens),
            "seconds": self.seconds,
            "first_token_seconds": self.tokens[0],
            "tokens_per_second": len(self.tokens) / self.seconds,
            "collectives": self.calls,
            "share_in_collectives": self.spent / self.seconds,
        }
