# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The norm of many gradients, and whether one is infinite or NaN: one pass of ours beside torch's ways, interleaved."""

from __future__ import annotations

import sys
from typing import Any

import torch

from accel_host import kernels
from benchmarks import results
from benchmarks.optimizers import medians

#: Number of tensors, elements of each.
SHAPES = ((1, 1 << 10), (1, 1 << 20), (1, 1 << 26), (300, 1000), (50, 1 << 20))


def row(tensors: int, size: int, threads: int, rounds: int) -> dict[str, Any]:
    """One set of gradients."""
    torch.set_num_threads(threads)
    grads = [torch.randn(size) for _ in range(tensors)]

    def torchs() -> float:
        return float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads))))

    def torchs_with_check() -> tuple[float, bool]:
        return torchs(), any(not bool(torch.isfinite(grad).all()) for grad in grads)

    seconds = medians(
        {"ours": lambda: kernels.sum_of_squares(grads) ** 0.5, "norm": torchs, "both": torchs_with_check},
        rounds,
        tensors * size,
    )
    return {
        "tensors": tensors,
        "elements each": size,
        "threads": threads,
        "ours µs": seconds["ours"] * 1e6,
        "GB/s": 4 * tensors * size / seconds["ours"] / 1e9,
        "torch's norm ÷ ours": round(seconds["norm"] / seconds["ours"], 2),
        "torch's norm and check ÷ ours": round(seconds["both"] / seconds["ours"], 2),
    }


def main() -> int:
    """Measure and write docs/results/norms.{md,json}."""
    options = results.arguments(__doc__)
    counts = sorted({1, torch.get_num_threads()})
    rows = [row(*shape, threads, options.rounds) for threads in counts for shape in SHAPES]
    text = (
        f"Medians of {options.rounds} interleaved rounds, float32. Ours is one pass in float64 whose result tells of "
        "infinity and NaN by itself; torch's norm is `_foreach_norm` in float32, its check `isfinite().all()`."
    )
    results.write("norms", "Norm and overflow check of gradients", text, rows, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
