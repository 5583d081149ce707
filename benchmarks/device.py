# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops of accel-cuda on a GPU, compared with copying memory, plain torch, and DeepSpeed's compiled sources.

Renews the first part of docs/results/device.md; the part about the CPU is a kept record.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from accel_core.processes import run
from accel_cuda import CUDA_Accelerator
from accel_cuda.op_builder.kernels import KernelBuilder
from accel_ops.quantizers.quantizer import QuantizerFunctions
from accel_testkit import timing
from benchmarks import results

NAME, TITLE = "device", "Ops for devices"
#: Bytes that a step of Adam has to move for each float32 parameter: it reads four numbers, and writes three.
ADAM_BYTES = 28
#: Bytes for each float16 number that is quantized to int8, or back.
QUANTIZE_BYTES = 3
_GROUP = 2048
_FIRST_USE = """
import time, torch
from accel_cuda import CUDA_Accelerator
x = torch.ones(64, 2048, dtype=torch.float16, device="cuda")
torch.cuda.synchronize()
began = time.perf_counter()
builder = CUDA_Accelerator().create_op_builder("QuantizerBuilder")
builder.load().quantize(x, 64, 8, 0)
torch.cuda.synchronize()
print(time.perf_counter() - began, builder.reason)
"""


@dataclass(frozen=True)
class Sizes:
    """adam: parameters. side: of the matrix that is quantized. copied: bytes. calls: to measure Python's time."""

    adam: int = 1_000_000_000
    side: int = 4096
    copied: int = 4 << 30
    calls: int = 2000
    rounds: int = 21


class UpstreamAdam(KernelBuilder):
    """DeepSpeed's CUDA source of FusedAdam."""

    NAME = "fused_adam"
    UPSTREAM = ("deepspeed.ops.op_builder.fused_adam.FusedAdamBuilder",)


class UpstreamQuantizer(KernelBuilder):
    """DeepSpeed's CUDA source of the quantizer."""

    NAME = "quantizer"
    UPSTREAM = ("deepspeed.ops.op_builder.quantizer.QuantizerBuilder",)


def rows(sizes: Sizes) -> list[dict[str, Any]]:
    """Measure; a row for each goal."""
    copy = _copy_rate(sizes)
    return [*_adam(sizes, copy), *_quantizer(sizes, copy), _first_use(), _launch(sizes)]


def lack() -> str:
    """Return why there is nothing to measure on; empty if there is a GPU."""
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no CUDA device"
    from accel_sim.simulation import current

    return "the CUDA device of this process is simulated" if current() else ""


def _row(what: str, route: str, figure: str, goal: str, reached: bool | None) -> dict[str, Any]:
    reported = {True: "yes", False: "**no**", None: "not run"}[reached]
    return {"measured": what, "route": route, "figure": figure, "goal": goal, "reached": reported}


def _medians(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each, in turns; the queue is empty before and after."""

    def measure(call: Callable[[], Any]) -> float:
        torch.cuda.synchronize()
        return timing.seconds(lambda: (call(), torch.cuda.synchronize()))

    measures = {name: partial(measure, call) for name, call in calls.items()}
    return timing.medians(timing.turns(measures, rounds, warm_up=2))


def _copy_rate(sizes: Sizes) -> float:
    """Return the bytes that a copy reads and writes in a second."""
    source = torch.ones(sizes.copied, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * sizes.copied / _medians({"copy": lambda: target.copy_(source)}, sizes.rounds)["copy"]


def _upstream(builder: KernelBuilder) -> tuple[Any, str]:
    """Return DeepSpeed's op, compiled, and why there is none."""
    compatible, why = builder.compatibility()
    if not compatible:
        return None, why
    try:
        return builder.load(verbose=False), ""
    except Exception as error:  # whatever a compiler, or its absence, raises
        return None, f"{type(error).__name__}: {error}".partition("\n")[0]


def _adam(sizes: Sizes, copy: float) -> list[dict[str, Any]]:
    builder = CUDA_Accelerator().create_op_builder("FusedAdamBuilder")
    upstream, why = _upstream(UpstreamAdam())
    lists = [[torch.full((sizes.adam,), number, device="cuda")] for number in (1e-3, 1.0, 0.0, 0.0)]
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")

    ops = {"ours": builder.load(verbose=False), **({"upstream": upstream} if upstream else {})}
    given = (65536, flag, lists, 1e-3, 0.9, 0.999, 1e-8, 7, 1, 1, 0.01)
    seconds = _medians({key: partial(op.multi_tensor_adam, *given) for key, op in ops.items()}, sizes.rounds)
    part = ADAM_BYTES * sizes.adam / seconds["ours"] / copy
    what = f"FusedAdam, {sizes.adam:,} float32 parameters"
    found = [_row(what, builder.reason, f"{part:.0%} of copy bandwidth", ">= 85 %", part >= 0.85)]
    return [*found, _beside(what, builder.reason, seconds, 1.03, why)]


def _beside(what: str, route: str, seconds: dict[str, float], most: float, why: str) -> dict[str, Any]:
    goal = f"<= {most:g} of upstream's time"
    if "upstream" not in seconds:
        return _row(what, route, f"upstream's not compiled: {why}", goal, None)
    part = seconds["ours"] / seconds["upstream"]
    return _row(what, route, f"{part:.2f} of upstream's time", goal, part <= most)


def _quantizer(sizes: Sizes, copy: float) -> list[dict[str, Any]]:
    builder = CUDA_Accelerator().create_op_builder("QuantizerBuilder")
    ours, plain = builder.load(verbose=False), QuantizerFunctions()
    upstream, why = _upstream(UpstreamQuantizer())
    ops = {"ours": ours, "plain": plain, **({"upstream": upstream} if upstream else {})}
    numbers = torch.randn(sizes.side, sizes.side, device="cuda").half()
    groups = max(1, numbers.numel() // _GROUP)
    data, steps = plain.quantize(numbers, groups, 8, 0)

    found = []
    for name, inputs in (("quantize", (numbers,)), ("dequantize", (data, steps))):
        calls = {key: partial(getattr(op, name), *inputs, groups, 8, op.Symmetric) for key, op in ops.items()}
        seconds = _medians(calls, sizes.rounds)
        what = f"{name}, {sizes.side}² float16 in 8 bits"
        part = QUANTIZE_BYTES * numbers.numel() / seconds["ours"] / copy
        times = seconds["plain"] / seconds["ours"]
        found += [
            _row(what, builder.reason, f"{part:.0%} of copy bandwidth", ">= 75 %", part >= 0.75),
            _row(what, builder.reason, f"{times:.1f} times as fast as plain torch", ">= 8 times", times >= 8),
            _beside(what, builder.reason, seconds, 1.05, why),
        ]
    return found


def _first_use() -> dict[str, Any]:
    """The quantizer is loaded and called in a process that has a context and nothing else."""
    done = run([sys.executable, "-c", _FIRST_USE])
    done.check_returncode()
    seconds, _, route = done.stdout.splitlines()[-1].partition(" ")
    reached = float(seconds) < 0.1 if route.startswith("image") else None
    return _row(
        "first use of the quantizer", route, f"{float(seconds):.3f} s", "< 0.1 s from a cubin", reached
    )


def _launch(sizes: Sizes) -> dict[str, Any]:
    builder = CUDA_Accelerator().create_op_builder("QuantizerBuilder")
    op, numbers = builder.load(verbose=False), torch.ones(8, 64, dtype=torch.float16, device="cuda")
    op.quantize(numbers, 8, 8, 0)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(sizes.calls):
        op.quantize(numbers, 8, 8, 0)
    microseconds = (time.perf_counter() - began) / sizes.calls * 1e6
    torch.cuda.synchronize()
    figure = f"{microseconds:.1f} µs a call"
    return _row("quantize, 8 x 64: Python's time", builder.reason, figure, "<= 8 µs", microseconds <= 8)


def page(data: dict[str, Any]) -> str:
    """Return the text of the page."""
    gpu = data["gpu"]
    measured = f"*Not run*: {gpu['lack']}." if "lack" in gpu else _table(gpu)
    how = "`python -m benchmarks.device` on a machine with a GPU measures this part. The other part is a kept record."
    parts = f"# {TITLE}", "## On a GPU", f"{measured} {how}", "## On the CPU", data["text"], _table(data)
    return "\n\n".join(parts) + "\n"


def _table(part: dict[str, Any]) -> str:
    note = "; ".join(f"{key} {value}" for key, value in part["circumstances"].items())
    return f"{results.markdown(part['rows'])}\n\nMeasured on: {note}."


def main() -> int:
    """Measure and renew docs/results/device.{md,json}; with `--try` print a tiny run."""
    parser = results.parser(__doc__, rounds=21)
    parser.add_argument(
        "--try", dest="tiny", action="store_true", help="small, also on a simulated GPU; no page"
    )
    options = parser.parse_args()
    if options.tiny:
        print(results.markdown(rows(Sizes(1 << 12, 256, 1 << 16, 20, 3))))
        return 0
    if reason := lack():
        print(f"not run: {reason}")
        return 0
    data = json.loads((results.FOLDER / f"{NAME}.json").read_text(encoding="utf-8"))
    here = results.circumstances() | {"GPU": torch.cuda.get_device_name()}
    data["gpu"] = {"rows": rows(Sizes(rounds=options.rounds)), "circumstances": here}
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    (options.out / f"{NAME}.json").write_text(text, encoding="utf-8")
    (options.out / f"{NAME}.md").write_text(page(data), encoding="utf-8")
    print(page(data))
    return 0


if __name__ == "__main__":
    sys.exit(main())
