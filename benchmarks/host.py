# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks of accel-ops's kernels share: turns of the contenders, the triad, and which library it is.

The STREAM triad a = b + s c moves 16 bytes an element: two arrays read, one written, and its lines read before (write
allocate). It is in accel-ops's library, so built with the same compiler, and runs on torch's number of threads.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from accel_ops import library
from benchmarks import results

TRIAD_BYTES = 16


def medians(calls: dict[str, Callable[[], Any]], rounds: int, size: int) -> dict[str, float]:
    """Median seconds a call on `size` elements, in turns of a random order.

    Each is called once untimed before: it would else find in the caches what the one before it left there.
    """
    repeat = max(1, 20_000 // size)

    def measure(call: Callable[[], Any]) -> float:
        call()
        return results.seconds(lambda: [call() for _ in range(repeat)]) / repeat

    measures = {name: partial(measure, call) for name, call in calls.items()}
    return results.medians(results.turns(measures, rounds, shuffle=True))


def triad(size: int) -> Callable[[], Any]:
    """One triad over arrays of `size` float32 elements."""
    arrays = [torch.ones(size) for _ in range(3)]
    addresses = [array.data_ptr() for array in arrays]
    functions = library.load().functions
    # `arrays` is named in the call so that they live as long as it does.
    return lambda: functions.accel_triad(*addresses, 2.0, size, torch.get_num_threads()) or arrays


def circumstances() -> dict[str, str]:
    """The library that is measured: where it came from, its compiler, the instructions that are at work."""
    loaded = library.load()
    origin = loaded.reason.partition(":")[0]
    if loaded.functions is None:
        return {"library": origin}
    level = loaded.functions.accel_level()
    return {
        "library": origin,
        "its compiler": _compiler(Path(loaded.functions._name)),
        "instructions": f"x86-64-v{level}" if level else "the baseline's",
    }


def _compiler(binary: Path) -> str:
    # Compilers sign what they make, in the section .comment.
    content = binary.read_bytes() if binary.is_file() else b""
    signed = re.search(rb"GCC: \([^)]*\) [\d.]+|clang version [\d.]+", content)
    return signed[0].decode() if signed else "unknown"
