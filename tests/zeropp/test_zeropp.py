# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Stock DeepSpeed with ZeRO++'s quantized weights and gradients on simulated devices: two nodes of two devices each."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from accel_testkit import sim

TRAIN = Path(__file__).with_name("train.py")
RANKS, DEVICES = 4, 2
CLASSES = {"xpu": "XPU_Accelerator", "cuda": "CUDA_Accelerator", "npu": "NPU_Accelerator"}
#: Allowed difference of the final loss from that of the unquantized run.
TOLERANCE = 0.01


def losses(device: str, dtype: str, *ways: str) -> dict[str, float]:
    """Train on four processes, of which each two believe to be a node of their own; return the final losses."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    dropped = ("DS_", "ACCEL_", "MASTER_")
    base = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    base |= {
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(RANKS),
        "OMP_NUM_THREADS": "1",
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(TRAIN), dtype, *ways],
            env=sim.environment(
                device,
                base=base | {"RANK": str(rank), "LOCAL_RANK": str(rank % DEVICES), "LOCAL_WORLD_SIZE": str(DEVICES)},
                devices=DEVICES,
            ),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(RANKS)
    ]  # fmt: skip
    try:
        outputs = [process.communicate(timeout=600)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert not any(process.returncode for process in started), "\n".join(text[-2000:] for text in outputs)
    answer = json.loads(outputs[0].splitlines()[-1])
    assert answer["accelerator"] == CLASSES[device]
    return dict(answer["losses"])


def apart(found: dict[str, float], way: str) -> float:
    """Return the relative difference from the unquantized run."""
    return abs(found[way] - found["plain"]) / found["plain"]


def test_quantized_training_ends_at_the_loss_of_unquantized_and_truncation_is_seen() -> None:
    found = losses("npu", "fp16", "plain", "quantized", "truncating")
    assert apart(found, "quantized") < TOLERANCE, found
    assert apart(found, "truncating") > TOLERANCE, found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "dtype"), [(d, t) for d in CLASSES for t in ("fp16", "bf16") if (d, t) != ("npu", "fp16")]
)
def test_quantized_training_ends_at_the_loss_of_unquantized(device: str, dtype: str) -> None:
    found = losses(device, dtype, "plain", "quantized")
    assert apart(found, "quantized") < TOLERANCE, found
