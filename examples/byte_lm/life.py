# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Signs of life of steps that show no progress of their own: imports, the engine's set-up, generation, drawing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from byte_lm import ranks

SILENCE = 1.5  # seconds


@contextmanager
def working(on: str) -> Iterator[None]:
    """Say what this step is, and while it lasts, how long it has; only on the rank that prints."""
    if not ranks.speaks():
        yield
        return
    print(f"{on} …", flush=True)
    ended = threading.Event()
    thread = threading.Thread(target=_remind, args=(ended, time.monotonic()), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _remind(ended: threading.Event, began: float) -> None:
    while not ended.wait(SILENCE):
        print(f"      {time.monotonic() - began:.0f} s so far", flush=True)
