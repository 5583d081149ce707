# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Child process: copies, the fused optimizer, a training step and collectives, each compared with torch."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from accel_core.api import get_accelerator
from accel_core.lost_devices import wrong_sum
from accel_testkit.engine import model
from accel_testkit.suite import launch, target
from accel_testkit.suite.launch import RankLauncher
from accel_testkit.timing import medians, seconds, turns
from accel_testkit.verify.steps import answer

_MIB = 1 << 20
_ROUNDS = {"quick": 7, "full": 31}
#: Bytes of one all_reduce.
SIZES = (4 << 10, 64 << 10, _MIB, 16 * _MIB)
Measured = dict[str, Any]


def main(key: str, mode: str) -> int:
    """Measure part by part, and leave what there is after each; returns 0."""
    accelerator: Any = get_accelerator()
    parts: dict[str, Callable[[], Iterator[Measured]]] = {
        "copies": lambda: _copies(accelerator, _ROUNDS[mode]),
        "fused optimizer": lambda: _optimizer(accelerator, _ROUNDS[mode]),
        "training step": lambda: _training(accelerator, _ROUNDS[mode]),
        "collectives": lambda: _collectives(accelerator, key, mode),
    }
    rows: list[Measured] = []
    failures: list[dict[str, str]] = []
    for name, part in parts.items():
        answer(_state(rows, failures) | {"incomplete": True, "running": name})
        try:
            for row in part():
                rows.append(row)
        except Exception as error:
            failures.append({"name": name, "reason": f"{type(error).__name__}: {error}"})
            if wrong := wrong_sum(accelerator.device()):
                failures.append(
                    {"name": "the parts after it", "reason": f"the device no longer computes: {wrong}"}
                )
                break
    answer(_state(rows, failures))
    return 0


def _state(rows: list[Measured], failures: list[dict[str, str]]) -> dict[str, Any]:
    return {"found": f"{len(rows)} measurements", "table": rows, "failures": failures}


def _medians(accelerator: Any, calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each call until the device has done it; the first round is not counted."""

    def timed(call: Callable[[], Any]) -> float:
        accelerator.synchronize()
        return seconds(lambda: (call(), accelerator.synchronize()))

    measures = {name: partial(timed, call) for name, call in calls.items()}
    return medians(turns(measures, rounds, warm_up=1))


def _row(
    what: str, size: str, value: float, unit: str, beside: str = "", ratio: float | None = None
) -> Measured:
    return {
        "what": what, "size": size, "value": float(f"{value:.4g}"), "unit": unit, "beside": beside,
        "ratio": None if ratio is None else float(f"{ratio:.3g}"),
    }  # fmt: skip


def _copies(accelerator: Any, rounds: int) -> Iterator[Measured]:
    size = 64 * _MIB
    pageable = torch.ones(size, dtype=torch.uint8)
    there = pageable.to(_device(accelerator), copy=True)
    other = torch.empty_like(there)
    calls: dict[str, Callable[[], Any]] = {
        "on the device": lambda: other.copy_(there),
        "pageable host to device": lambda: there.copy_(pageable),
    }
    with contextlib.suppress(Exception):  # not every device has page-locked memory
        pinned = accelerator.pin_memory(pageable)
        calls["pinned host to device"] = lambda: there.copy_(pinned, non_blocking=True)
        calls["device to pinned host"] = lambda: pinned.copy_(there, non_blocking=True)
    found = _medians(accelerator, calls, rounds)
    for name, taken in found.items():
        factor = 2 if name == "on the device" else 1  # it reads and writes the same memory
        yield _row(f"copy, {name}", "64 MiB", factor * size / taken / 1e9, "GB/s")


def _optimizer(accelerator: Any, rounds: int) -> Iterator[Measured]:
    op = accelerator.create_op_builder("FusedAdamBuilder").load()
    count, shape = 16, (512, 512)
    device = _device(accelerator)
    lists = [[torch.rand(shape, device=device) for _ in range(count)] for _ in range(4)]
    overflow = torch.zeros(1, dtype=torch.int, device=device)
    parameters = [torch.nn.Parameter(torch.rand(shape, device=device)) for _ in range(count)]
    for parameter in parameters:
        parameter.grad = torch.rand(shape, device=device)
    beside = torch.optim.AdamW(parameters, foreach=True)
    elements = count * shape[0] * shape[1]
    source = torch.rand(elements, device=device)
    target_ = torch.empty_like(source)
    constants = (1e-3, 0.9, 0.999, 1e-8, 1, 1, 1, 0.01)
    calls: dict[str, Callable[[], Any]] = {
        "fused": lambda: op.multi_tensor_adam(2 << 15, overflow, lists, *constants),
        "torch": beside.step,
        "copy": lambda: target_.copy_(source),
    }
    found = _medians(accelerator, calls, rounds)
    size, faster = f"{elements / 1e6:.1f} M float32", found["torch"] / found["fused"]
    yield _row("FusedAdam step", size, found["fused"] * 1e3, "ms", "torch AdamW(foreach)", faster)
    # It reads four and writes three numbers of each element, a copy reads one and writes one.
    yield _row("FusedAdam bandwidth", size, 28 * elements / found["fused"] / 1e9, "GB/s", "copy on the device",
               28 / 8 * found["copy"] / found["fused"])  # fmt: skip


def _training(accelerator: Any, rounds: int) -> Iterator[Measured]:
    import deepspeed

    device = _device(accelerator)
    symbols = torch.randint(0, model.VOCABULARY, (model.BATCH, model.LENGTH + 1)).to(device)
    network, other = model.make().to(device), model.make()
    optimizer, another = (torch.optim.AdamW(one.parameters(), lr=1e-3) for one in (network, other))
    launch.alone(accelerator)
    config = {
        "train_micro_batch_size_per_gpu": model.BATCH,
        "zero_optimization": {"stage": 2},
        "zero_allow_untested_optimizer": True,
    }
    engine, *_ = deepspeed.initialize(model=other, optimizer=another, config=config)

    def plain() -> None:
        network(symbols).backward()
        optimizer.step()
        optimizer.zero_grad()

    def zero() -> None:
        engine.backward(engine(symbols))
        engine.step()

    found = _medians(accelerator, {"plain": plain, "zero": zero}, 3 * rounds)
    dist.destroy_process_group()
    size, faster = "2 layers, width 32", found["plain"] / found["zero"]
    yield _row("training step, plain torch", size, found["plain"] * 1e3, "ms")
    yield _row("training step, ZeRO 2", size, found["zero"] * 1e3, "ms", "plain torch", faster)


def _collectives(accelerator: Any, key: str, mode: str) -> Iterator[Measured]:
    if int(accelerator.device_count()) < 2 and _device(accelerator).type != "cpu":
        return
    with tempfile.TemporaryDirectory(prefix="accel-verify-") as folder:
        launcher = RankLauncher(target.named(key, ""), Path(folder))
        answers = launcher.run("accel_testkit.verify.speed", 2, {"rounds": _ROUNDS[mode]})
    for one in answers:
        if one.get("error"):
            raise RuntimeError(one["error"])
    for size, taken in answers[0]["seconds"].items():
        number = int(size)
        shown = f"{number >> 20} MiB" if number >= _MIB else f"{number >> 10} KiB"
        yield _row(f"all_reduce, 2 ranks, {answers[0]['backend']}", shown, taken * 1e6, "µs")


def work(accelerator: Any, answer: dict[str, Any], folder: Path) -> None:
    """Be one rank of the collectives: put the median seconds of each size into the answer."""
    rounds, device = launch.order(folder)["rounds"], _device(accelerator)
    answer["backend"], answer["seconds"] = dist.get_backend(), {}
    for size in SIZES:
        tensor = torch.zeros(size // 4, device=device)

        def timed(tensor: torch.Tensor = tensor) -> float:
            dist.barrier()
            return seconds(lambda: (dist.all_reduce(tensor), accelerator.synchronize()))

        answer["seconds"].update(medians(turns({str(size): timed}, rounds, warm_up=1)))


def _device(accelerator: Any) -> torch.device:
    return torch.device(accelerator.current_device_name())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
