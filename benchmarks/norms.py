# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The norm of many gradients, and whether one is infinite or NaN: one pass of ours, DeepSpeed's and torch's ways.

They take turns in one run, with the STREAM triad over as many elements. DeepSpeed has no kernel for
this: on the host its engine calls the functions of deepspeed.runtime.utils that are called here.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from deepspeed.runtime.utils import CheckOverflow, get_global_norm_of_tensors

from accel_ops import kernels
from accel_testkit import timing
from benchmarks import host, results

#: Number of tensors, elements of each.
SHAPES = ((1, 1 << 10), (1, 1 << 20), (1, 1 << 26), (300, 1000), (50, 1 << 20))


def contenders(grads: list[torch.Tensor]) -> dict[str, Callable[[], Any]]:
    """One call of each on the same gradients."""
    params = [torch.nn.Parameter(grad) for grad in grads]
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad
    checker = CheckOverflow()

    def upstreams() -> float:
        return float(get_global_norm_of_tensors(grads))

    def torchs() -> float:
        return float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads))))

    def torchs_check() -> bool:
        return any(not bool(torch.isfinite(grad).all()) for grad in grads)

    return {
        "ours": lambda: kernels.sum_of_squares(grads) ** 0.5,
        "upstream's norm": upstreams,
        "upstream's norm and check": lambda: (upstreams(), checker.has_overflow_serial(params)),
        "torch's norm": torchs,
        "torch's norm and check": lambda: (torchs(), torchs_check()),
    }


def row(tensors: int, size: int, threads: int, rounds: int) -> dict[str, Any]:
    """One set of gradients."""
    torch.set_num_threads(threads)
    calls = contenders([torch.randn(size) for _ in range(tensors)])
    elements = tensors * size
    seconds = timing.warm_medians(calls | {"triad": timing.triad(elements)}, rounds, elements)
    rate = 4 * elements / seconds["ours"] / 1e9
    triad = timing.TRIAD_BYTES * elements / seconds["triad"] / 1e9
    ratios = {f"{name} ÷ ours": round(seconds[name] / seconds["ours"], 2) for name in calls if name != "ours"}
    return {
        "tensors": tensors,
        "elements each": size,
        "threads": threads,
        "ours µs": seconds["ours"] * 1e6,
        "GB/s": rate,
        "of triad": round(rate / triad, 2),
        **ratios,
    }


def main() -> int:
    """Measure and write docs/results/norms.{md,json}."""
    options = results.parser(__doc__).parse_args()
    counts = sorted({1, torch.get_num_threads()})
    rows = [row(*shape, threads, options.rounds) for threads in counts for shape in SHAPES]
    text = (
        f"Medians of {options.rounds} interleaved rounds, float32. Ours is one pass in float64 whose result tells of "
        "infinity and NaN by itself: 4 bytes an element. The triad over as many elements counts as 16, write-allocate "
        "included; ours only reads, so that the two are alike, not the same. Upstream's are DeepSpeed's "
        "`get_global_norm_of_tensors` and `CheckOverflow.has_overflow_serial`, which are torch operators; torch's norm "
        "is `_foreach_norm`, its check `isfinite().all()`."
    )
    results.write(
        "norms", "Norm and overflow check of gradients", text, rows, options.out, host.circumstances()
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
