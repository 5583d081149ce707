# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Child process: the machine, its devices, and the environment variables that matter to them; never secrets."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import shutil
import sys
from subprocess import TimeoutExpired
from typing import Any

from accel_core.processes import run
from accel_core.selection.candidates import discover
from accel_testkit.verify.steps import ANSWER, answer

_PREFIXES = (
    "ACCEL_", "DS_", "DEEPSPEED_", "TORCH_", "PYTORCH_", "OMP_", "KMP_", "MKL_", "GLOO_", "LD_", "PYTHON",
)  # fmt: skip
_SECRET = re.compile(r"TOKEN|SECRET|PASS|KEY|CRED|AUTH", re.I)
_DISTRIBUTIONS = re.compile(
    r"accel[-_]|torch|deepspeed|transformers|accelerate|numpy|intel|habana|oneccl|triton"
)
#: What `accel verify` itself sets.
_OURS = (ANSWER, "DS_ACCELERATOR", "PYTHONFAULTHANDLER")
#: The vendors' commands that show driver, firmware and devices: the first one that is installed is run.
_TOOLS = {
    "cuda": ("nvidia-smi", "rocm-smi", "mx-smi", "ixsmi", "hy-smi", "xpu-smi"),
    "hpu": ("hl-smi",),
    "mlu": ("cnmon",),
    "npu": ("npu-smi info",),
    "sdaa": ("teco-smi",),
    "supa": ("brsmi",),
    "xpu": ("xpu-smi discovery",),
    "mps": ("system_profiler SPDisplaysDataType",),
}
_TOOL_SECONDS = 30
_SECOND_SECONDS = 120
_MOST_OUTPUT = 8000


def main() -> int:
    """Write one row a fact; returns 0."""
    from accel_core.api import get_accelerator

    rows = [_row("system", f"{platform.system()} {platform.release()} {platform.machine()}"), *_host()]
    accelerator: Any = get_accelerator()
    rows.append(_row("accelerator", f"{type(accelerator).__module__}.{type(accelerator).__name__}"))
    count = int(accelerator.device_count())
    indexed = "indexed_devices" not in (getattr(accelerator, "traits", None) or {})
    shared = not indexed and count < 2 and _second_rank_has_a_device()
    shown = "ranks share one device" if shared else f"{count} device{'s' * (count != 1)}"
    rows.append(_row("devices", shown if shared else str(count)))
    key = str(accelerator.device_name()).partition(":")[0]
    rows += _evidence(key)
    rows += _devices(accelerator, count)
    rows += _variables(accelerator)
    rows += [_row(f"package {name}", version) for name, version in sorted(distributions().items())]
    rows += [_row("driver's tool", output)] if (output := _tool(key)) else []
    first = next((r["value"] for r in rows if r["fact"] == "device 0"), "")
    answer({"found": f"{shown}{f', {first}' if first else ''}", "table": rows})
    return 0


def _second_rank_has_a_device() -> bool:
    """Return whether a process of local rank 1 has a device: of its own, or shared with this process."""
    code = (
        "import torch; from accel_core.api import get_accelerator; get_accelerator().set_device(1);"
        "torch.ones(1, device=get_accelerator().device()).cpu()"
    )
    environment = {**os.environ, "LOCAL_RANK": "1", "RANK": "1", "WORLD_SIZE": "2"}
    try:
        return run([sys.executable, "-c", code], _SECOND_SECONDS, env=environment).returncode == 0
    except TimeoutExpired:
        return False


def _row(fact: str, value: str) -> dict[str, str]:
    return {"fact": fact, "value": value}


def processor() -> str:
    """Return the processor's name and how many CPUs this process may use."""
    model = platform.processor()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        model = next(
            (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model
        )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{model}, {cores} usable CPUs"


def _host() -> list[dict[str, str]]:
    rows = [_row("processor", processor())]
    with contextlib.suppress(ValueError, OSError, AttributeError):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        rows.append(_row("host memory", f"{memory / 2**30:.1f} GiB"))
    return rows


def _evidence(key: str) -> list[dict[str, str]]:
    """Return what the installed probes of a key find without a runtime, such as the device files."""
    rows = []
    for vendor in discover().vendors:
        if vendor.key == key:
            with contextlib.suppress(Exception):
                rows.append(_row(f"evidence of {vendor.label}", vendor.evidence().reason))
    return rows


def _devices(accelerator: Any, count: int) -> list[dict[str, str]]:
    rows = []
    runtime = getattr(sys.modules.get("torch"), str(accelerator.device_name()).partition(":")[0], None)
    for index in range(count):
        name, facts = str(accelerator.device_name(index)), []
        with contextlib.suppress(Exception):  # a runtime need not have properties
            properties = runtime.get_device_properties(index)  # type: ignore[union-attr]
            names = {n for n in dir(properties) if not n.startswith("_")} - {"uuid", "total_memory"}
            simple = {n: getattr(properties, n) for n in sorted(names)}
            name = str(simple.pop("name", name))
            facts += [f"{n} {v}" for n, v in simple.items() if isinstance(v, str | int | float) and v != ""]
        with contextlib.suppress(Exception):
            name += f", {accelerator.total_memory(index) / 2**30:.1f} GiB"
        rows.append(_row(f"device {index}", name))
        rows += [_row(f"properties {index}", ", ".join(facts))] if facts else []
    return rows


def _variables(accelerator: Any) -> list[dict[str, str]]:
    prefixes = [*_PREFIXES, *accelerator.export_envs(), *accelerator.visible_devices_envs()]
    return [
        _row(f"${name}", value[:1000])
        for name, value in sorted(os.environ.items())
        if name.startswith(tuple(prefixes)) and not _SECRET.search(name) and name not in _OURS
    ]


def distributions() -> dict[str, str]:
    """Return {name: version} of the installed packages that matter here."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        if _DISTRIBUTIONS.match(name):
            found.setdefault(name, distribution.version)
    return found


def _tool(key: str) -> str:
    commands = [command.split() for command in _TOOLS.get(key, ())]
    command = next((command for command in commands if shutil.which(command[0])), None)
    if command is None:
        return ""
    try:
        done = run(command, _TOOL_SECONDS)
    except (OSError, TimeoutExpired) as error:
        return f"{' '.join(command)}: {error}"
    return (done.stdout + done.stderr)[:_MOST_OUTPUT]


if __name__ == "__main__":
    sys.exit(main())
