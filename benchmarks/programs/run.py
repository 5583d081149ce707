# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Run programs in processes that have a simulated device, or none, and compare their losses."""

import importlib
import json
import os
import sys
import warnings
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import accel_sim
from accel_core import processes
from benchmarks.programs import Programs

DEVICES = ("npu", "hpu", "mlu", "xpu", "cuda")
KINDS = ("single", "ranks")
ROOT = Path(__file__).resolve().parents[2]
_LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
#: Losses may differ from the CPU's by this part of them: attention and collectives sum in other orders.
TOLERANCE = 1e-3

Outcomes = dict[str, dict[str, Any]]


def outcomes(kind: str, device: str, names: Iterable[str] = ()) -> Outcomes:
    """Return losses or error of each program of a kind on a device, by its name. `cpu` is the machine's own."""
    launcher = _LAUNCHER if kind == "ranks" else ()
    command = [
        sys.executable,
        "-W",
        "ignore",
        *launcher,
        "-m",
        "benchmarks.programs.run",
        kind,
        device,
        *names,
    ]
    base = {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": device}
    environment = base if device == "cpu" else accel_sim.environment(device, base=base)
    done = processes.run(command, 900, env=environment, cwd=ROOT)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"outcomes"')]
    if not lines:
        raise RuntimeError(f"{' '.join(command)} failed\n{done.stderr[-3000:]}")
    found: Outcomes = json.loads(lines[-1])["outcomes"]
    return found


def difference(found: list[float], reference: list[float]) -> float:
    """Return the largest difference of two lists of losses, as a part of the reference."""
    if len(found) != len(reference):
        return float("inf")
    return max(abs(a - b) / max(abs(b), 1e-6) for a, b in zip(found, reference, strict=True))


def verdict(found: dict[str, Any], reference: dict[str, Any]) -> str:
    """Return how an outcome compares with the CPU's: `equal`, the difference, or the error."""
    if "error" in found:
        return str(found["error"])
    if "error" in reference:
        return f"works; fails on the CPU: {reference['error']}"
    far = difference(found["losses"], reference["losses"])
    return "equal" if far == 0 else f"{far:.0e}" if far <= TOLERANCE else f"differs by {far:.0e}"


def passes(text: str) -> bool:
    """Return whether a verdict is that of a program that works."""
    return text == "equal" or text[:1].isdigit()


#: Guards against a hang.
_TIMEOUT = timedelta(seconds=120)


def worker(kind: str, device: str, *names: str) -> None:
    """Run all programs of a kind, or those named, in this process or rank; print losses or error of each as JSON."""
    warnings.simplefilter("ignore")
    programs: Programs = importlib.import_module(f"benchmarks.programs.{kind}").PROGRAMS
    from accel_core import get_accelerator

    accelerator = get_accelerator()  # imports the vendor's runtime, as the first line of a program does
    if kind == "ranks":
        _join(device, accelerator)
    outcomes = {
        name: _outcome(program, device) for name, program in programs.items() if not names or name in names
    }
    if int(os.environ.get("RANK", "0")) == 0:
        sys.stdout.write("\n" + json.dumps({"outcomes": outcomes}) + "\n")


def _join(device: str, accelerator: Any) -> None:
    if device != "cpu":
        accelerator.set_device(int(os.environ["LOCAL_RANK"]))
    import deepspeed

    deepspeed.init_distributed(accelerator.communication_backend_name(), timeout=_TIMEOUT)


def _outcome(program: Any, device: str) -> dict[str, Any]:
    try:
        losses = program(device)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        return {"error": f"{type(error).__name__}: {first}"[:300]}
    return {"losses": losses}


if __name__ == "__main__":
    worker(*sys.argv[1:])
