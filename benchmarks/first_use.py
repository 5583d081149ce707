# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""From `deepspeed.initialize` to the end of ZeRO-Offload's first step, every cache empty: ours and DeepSpeed's own.

Every sample is a fresh process that has imported torch and deepspeed. The least there can be is a run without any
custom op: torch.optim.AdamW in the place of DeepSpeed's CPU Adam, and DeepSpeed's own methods.
"""

import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from accel_core.processes import run
from accel_testkit import timing
from benchmarks import results

_RUN = """
import time, warnings
warnings.simplefilter("ignore")
import torch, deepspeed
model = torch.nn.Linear(1000, 1000)
config = {{
    "train_batch_size": 1,
    "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-3, "torch_adam": {torch_adam}}}}},
    "zero_optimization": {{"stage": 2, "offload_optimizer": {{"device": "cpu"}}}},
    "zero_force_ds_cpu_optimizer": False,
}}
began = time.perf_counter()
engine, *_ = deepspeed.initialize(model=model, config=config)
engine.backward(engine(torch.rand(1, 1000)).sum())
engine.step()
took = time.perf_counter() - began
optimizer = engine.optimizer.optimizer
assert type(optimizer).__name__ == {optimizer!r}, optimizer
how = "torch"
if {ours}:
    from accel_ops.host import library
    how = library.load().reason
    assert type(optimizer.ds_opt_adam).__module__ == "accel_ops.optimizers.host"
torch.distributed.destroy_process_group()
print("took", took, how)
"""
_NO_COMPILER = {"PATH": "", "CXX": ""}
_THEIRS = {"ACCEL_BRIDGE": "0", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


@dataclass(frozen=True)
class Case:
    """One row. library: what accel-ops has to say of how it came by its library."""

    name: str
    environment: Mapping[str, str]
    library: str = ""
    torch_adam: bool = False
    wheel: bool = False

    def seconds(self, wheel: Path) -> float:
        """Return the seconds of the run in a fresh process, with every cache empty."""
        with tempfile.TemporaryDirectory(prefix="first-use-") as folder:
            environment = {
                **os.environ,
                **_ranks(),
                "ACCEL_CACHE_DIR": f"{folder}/accel",
                "TORCH_EXTENSIONS_DIR": f"{folder}/torch",
                "DS_ACCELERATOR": "cpu",
                **({"PYTHONPATH": str(wheel)} if self.wheel else {}),
                **self.environment,
            }
            ended = run([sys.executable, "-c", self._code()], env=environment)
        found = [line for line in ended.stdout.splitlines() if line.startswith("took ")]
        if ended.returncode or not found:
            raise SystemExit(f"{self.name}: status {ended.returncode}\n{ended.stdout}{ended.stderr}")
        _, took, how = found[-1].split(" ", 2)
        if not how.startswith(self.library):
            raise SystemExit(f"{self.name}: not as meant: {how}")
        return float(took)

    def _code(self) -> str:
        optimizer = "AdamW" if self.torch_adam else "DeepSpeedCPUAdam"
        return _RUN.format(torch_adam=self.torch_adam, optimizer=optimizer, ours=bool(self.library))


# The replaced methods would load accel-ops's library, and compile it ahead of the first step.
LEAST = Case("no custom op (torch.optim.AdamW)", {"ACCEL_SPEEDUPS": "0"}, torch_adam=True)
OURS = (
    Case("accel-ops's wheel, no compiler", _NO_COMPILER, "built library", wheel=True),
    Case("accel-ops from source", {}, "compiled on this machine"),
    Case("accel-ops from source, no compiler", _NO_COMPILER, "plain torch"),
)
UPSTREAM = Case("DeepSpeed alone", _THEIRS)


def _ranks() -> dict[str, str]:
    """Of a run with one rank, on a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    return {**ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def _install_wheel(folder: Path) -> None:
    """accel-ops's wheel alone, before the installed accel-ops on the path."""
    package = Path(__file__).resolve().parent.parent / "packages/accel-ops"
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder), str(package)]
    run(command, stdout=None, stderr=None).check_returncode()


def main() -> int:
    """Measure and write docs/results/first_use.{md,json}."""
    options = results.parser(__doc__, rounds=7).parse_args()
    with tempfile.TemporaryDirectory(prefix="first-use-wheel-") as wheel:
        _install_wheel(Path(wheel))
        runs = {case.name: partial(case.seconds, Path(wheel)) for case in (LEAST, *OURS)}
        samples = timing.turns(runs, options.rounds)
        samples[UPSTREAM.name] = [UPSTREAM.seconds(Path(wheel))]  # minutes: once
    medians = timing.medians(samples)
    rows: list[dict[str, Any]] = [
        {
            "first step with": name,
            "s": round(took, 3),
            "s beyond no custom op": round(took - medians[LEAST.name], 3),
            "runs": len(samples[name]),
        }
        for name, took in medians.items()
    ]
    text = (
        "`deepspeed.initialize`, forward, backward and step of one linear layer with ZeRO stage 2 and the optimizer "
        "offloaded, one rank, on the CPU. Fresh processes, empty caches; medians of interleaved rounds. `no compiler`: "
        "nothing is on PATH; without a built library plain torch then computes. DeepSpeed alone compiles its CPU Adam "
        "and its shared-memory collectives in that time. Goals: within 0.1 s of no "
        "custom op with the wheel and no compiler, and within 2 s with a forced build from source."
    )
    results.write("first_use", "Time to ZeRO-Offload's first step", text, rows, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
