# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops for devices: on a GPU, where there is one, beside copying memory; on the CPU, beside torch.compile and DeepSpeed.

On the CPU the contenders take turns in one run: the quantizer in plain torch, which is what most devices have; the same
by torch.compile; DeepSpeed's torch code for npu; and the source of our kernels, whose threads run as fibers, and as
SPIR-V on Intel's OpenCL for CPUs where ACCEL_XPU_RUNTIMES names its folders.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from deepspeed.ops.op_builder.npu.quantizer import NPUQuantizer

from accel_ops.kernel_builders import packed_arguments
from accel_ops.quantizer import QuantizerFunctions
from accel_ops.quantizer_kernels import KernelQuantizerFunctions
from accel_sim.driver import HostKernels
from accel_testkit import timing
from benchmarks import device_gpu, device_spirv, results

NAME, TITLE = "device", "Ops for devices"
#: Of a matrix of float16, 16.8 million numbers in groups of 2048.
SIDE, GROUP = 4096, 2048
#: The fibers have this part of the numbers.
FIBERS = 64
_GPU = """`python -m benchmarks.device` on a machine with a GPU measures this part, and leaves the other as it is."""
_CPU = """Medians of {rounds} interleaved rounds. *plain* is the quantizer in plain torch, as most devices compute it; \
*compiled* the same through torch.compile, after a first call of {first}; *upstream's* the torch code of DeepSpeed \
{release} for npu, which truncates instead of rounding; *kernel* the source of our device kernels on \
`accel_sim.driver`, which runs the threads of a block one at a time to find faults in kernels: no device and no \
host uses it. It has a {fibers}th of the numbers, and its time is multiplied by {fibers}. Results of *compiled* and \
*kernel* are those of *plain* to the last bit: {same}. {spirv}"""
_SPIRV = """*spir-v* is the same source as accel-xpu packages it, on Intel's OpenCL for CPUs (intel-sycl-rt {}), and \
has the same bits, too."""

Calls = dict[str, Callable[[], Any]]


def functions(op: Any, numbers: torch.Tensor, groups: int, wrap: Callable[..., Any] = lambda f: f) -> Calls:
    """One call of each function that is measured."""
    data, steps = QuantizerFunctions().quantize(numbers, groups, 8, 0)
    quantize, dequantize, swizzle = (
        wrap(getattr(op, name)) for name in ("quantize", "dequantize", "swizzle_quant")
    )
    return {
        "quantize, 8 bits": lambda: quantize(numbers, groups, 8, 0),
        "dequantize, 8 bits": lambda: dequantize(data, steps, groups, 8, 0),
        "swizzle_quant, 4 bits": lambda: swizzle(numbers, groups, 4, 0, 1, 2, 2),
    }


def cpu(side: int, rounds: int) -> tuple[str, list[dict[str, Any]]]:
    """Return a text, and a row for each function."""
    from torch._inductor import config

    config.force_disable_caches = True  # the first call compiles, also after an earlier run
    numbers = torch.randn(side, side, generator=torch.Generator().manual_seed(1)).half()
    groups = numbers.numel() // min(GROUP, numbers.numel() // FIBERS // 4)
    few, few_groups = numbers[: side // FIBERS], groups // FIBERS
    plain = functions(QuantizerFunctions(), numbers, groups)
    kernels = KernelQuantizerFunctions("cpu", HostKernels(packed_arguments).launch)
    others = {
        "compiled": functions(QuantizerFunctions(), numbers, groups, torch.compile),
        "upstream's": functions(NPUQuantizer, numbers, groups),
        "kernel": functions(kernels, few, few_groups),
    }
    spirv, added = _spirv(numbers, groups)
    others |= added
    few_plain = functions(QuantizerFunctions(), few, few_groups)
    first, same, rows = [], True, []
    for name, call in plain.items():
        began = time.perf_counter()
        compiled = others["compiled"][name]()
        first.append(time.perf_counter() - began)
        same &= _equal(compiled, call()) and _equal(others["kernel"][name](), few_plain[name]())
        same &= "spir-v" not in others or _equal(others["spir-v"][name](), call())
        calls = {"plain": call, **{key: made[name] for key, made in others.items()}}
        seconds = timing.warm_medians(calls, rounds, numbers.numel())
        seconds["kernel"] *= FIBERS
        rows.append(_row(name, numbers.numel(), seconds))
    stated = " and ".join((", ".join(f"{s:.0f} s" for s in first[:-1]), f"{first[-1]:.0f} s"))
    release = results.circumstances()["deepspeed"]
    text = _CPU.format(
        rounds=rounds,
        first=stated,
        release=release,
        fibers=FIBERS,
        same="yes" if same else "**no**",
        spirv=spirv,
    )
    return text, rows


def _spirv(numbers: torch.Tensor, groups: int) -> tuple[str, dict[str, Calls]]:
    """Return a sentence, and the calls of accel-xpu's kernels, if this process has their runtime."""
    if lack := device_spirv.lack():
        return f"SPIR-V on a CPU: not run here, {lack}.", {}
    op = KernelQuantizerFunctions("cpu", device_spirv.Kernels().launch)
    return _SPIRV.format(device_spirv.release()), {"spir-v": functions(op, numbers, groups)}


def _row(name: str, elements: int, seconds: dict[str, float]) -> dict[str, Any]:
    times = {f"{key} ms": round(value * 1e3, 1) for key, value in seconds.items()}
    ratios = {
        f"{key} ÷ plain": seconds[key] / seconds["plain"] for key in seconds if key not in ("plain", "kernel")
    }
    return {"function": name, "elements": elements, "threads": torch.get_num_threads(), **times, **ratios}


def _equal(found: Any, wanted: Any) -> bool:
    if isinstance(found, torch.Tensor):
        return torch.equal(found, wanted)
    return all(
        torch.equal(mine.view(-1), theirs.view(-1)) for mine, theirs in zip(found, wanted, strict=True)
    )


def page(data: dict[str, Any]) -> str:
    """Return the page's text."""
    gpu = data["gpu"]
    measured = f"*Not run*: {gpu['lack']}." if "lack" in gpu else _table(gpu)
    parts = f"# {TITLE}", "## On a GPU", f"{measured} {_GPU}", "## On the CPU", data["text"], _table(data)
    return "\n\n".join(parts) + "\n"


def _table(part: dict[str, Any]) -> str:
    note = "; ".join(f"{key} {value}" for key, value in part["circumstances"].items())
    return f"{results.markdown(part['rows'])}\n\nMeasured on: {note}."


def _gpu(kept: dict[str, Any]) -> dict[str, Any]:
    """Measure on the GPU; without one, return what another machine measured."""
    lack = device_gpu.lack()
    if lack:
        return kept if "rows" in kept else {"lack": lack}
    rows = device_gpu.rows(device_gpu.Sizes())
    return {"rows": rows, "circumstances": results.circumstances() | {"GPU": torch.cuda.get_device_name()}}


def main() -> int:
    """Measure and write docs/results/device.{md,json}; with `--try` print tiny runs of both parts."""
    parser = results.parser(__doc__, rounds=11)
    parser.add_argument(
        "--try", dest="tiny", action="store_true", help="small sizes, also on a simulated GPU; no page"
    )
    options = parser.parse_args()
    if (status := device_spirv.started_again()) is not None:
        return status
    if options.tiny:
        if torch.cuda.is_available():
            print(results.markdown(device_gpu.rows(device_gpu.Sizes(1 << 12, 256, 1 << 16, 20, 3))))
        else:
            print(results.markdown(cpu(256, 3)[1]))
        return 0
    file = options.out / f"{NAME}.json"
    kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    data = {"title": TITLE, "gpu": _gpu(kept.get("gpu", {}))}
    if kept and not device_gpu.lack():
        data |= {key: kept[key] for key in ("text", "circumstances", "rows")}
    else:
        text, rows = cpu(SIDE, options.rounds)
        data |= {"text": text, "circumstances": results.circumstances(), "rows": rows}
    options.out.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (options.out / f"{NAME}.md").write_text(page(data), encoding="utf-8")
    print(page(data))
    return 0


if __name__ == "__main__":
    sys.exit(main())
