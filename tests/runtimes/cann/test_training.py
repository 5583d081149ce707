# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed on the unchanged torch_npu with faults: right losses, or an error that names what failed.

Losses at every stage and type: `accel_testkit.engine` on this runtime, in the same tox environment.
"""

import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from accel_core import processes
from tests.runtimes.cann import build

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="not run: needs torch_npu"),
]

_PROGRAM = Path(__file__).with_name("train.py")
_RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


@functools.cache
def _environment() -> dict[str, str]:
    return build.environment({**os.environ, "EMULATED_CANN_SECONDS": "8"})


def trained(stage: int | str = 0, ranks: int = 1, **variables: str) -> subprocess.CompletedProcess[str]:
    """Train on the emulated devices."""
    command = [sys.executable, "-W", "ignore", *_RANKS, str(ranks), str(_PROGRAM), str(stage)]
    return processes.run(command, 300, env={**_environment(), **variables})


def losses(ended: subprocess.CompletedProcess[str]) -> list[float]:
    assert ended.returncode == 0, ended.stderr[-3000:]
    line = next(line for line in ended.stdout.splitlines() if line.startswith('{"losses"'))
    return list(json.loads(line)["losses"])


@functools.cache
def plain() -> list[float]:
    return losses(trained("plain", TORCH_DEVICE_BACKEND_AUTOLOAD="0"))


#: Operators and calls of the training above.
_OPERATORS = (
    "aclnnAddmm", "aclnnMm", "aclnnMatmul", "aclnnBatchMatMul", "aclnnEmbedding", "aclnnLayerNorm", "aclnnSoftmax",
    "aclnnLogSoftmax", "aclnnNLLLoss", "aclnnInplaceCopy", "aclnnMul", "aclnnMuls", "aclnnAdd", "aclnnInplaceAdd",
    "aclnnLayerNormBackward", "aclnnEmbeddingDenseBackward", "aclnnLogSoftmaxBackward", "aclnnNLLLossBackward",
    "aclnnReduceSum", "aclnnCat",
)  # fmt: skip
_CALLS = ("aclrtMemcpy", "aclrtRecordEvent", "HcclAllReduce", "HcclBroadcast")
_FAULTS = [
    *(f"{name}=late" for name in (*_OPERATORS, *_CALLS)),
    *(f"{name}=refuse" for name in ("aclnnMm", "aclnnLayerNorm", "aclrtMalloc", "aclrtMallocHost", "HcclAllReduce")),
    *(f"{name}=late@20" for name in ("aclnnMul", "aclnnAdd", "aclnnInplaceCopy")),
    "aclnnApplyAdamWV2=late", "aclnnApplyAdamWV2=refuse", "aclnnApplyAdamWV2=wrong",
    "aclnnMul=slow", "aclrtMemcpy=slow@30",
    "aclnnAdd=hang", "aclnnLayerNorm=hang", "aclnnMul=dead@5",
]  # fmt: skip

#: What torch_npu says instead of the call's name.
_NAMES = {"aclrtMalloc=refuse": "out of memory"}


@pytest.mark.parametrize("fault", _FAULTS)
def test_a_fault_of_the_device_is_an_error_or_does_no_harm(fault: str) -> None:
    ended = trained(EMULATED_CANN_FAULTS=fault)
    if ended.returncode == 0:
        assert losses(ended) == pytest.approx(plain(), rel=1e-5)
    elif "dead" not in fault:
        assert _NAMES.get(fault, fault.partition("=")[0]) in ended.stderr


@pytest.mark.parametrize(
    "fault", ["HcclAllReduce=late", "HcclAllReduce=hang", "HcclAllReduce=dead@3", "HcclBroadcast=late"]
)
def test_a_fault_of_one_rank_ends_the_job(fault: str) -> None:
    ended = trained(2, ranks=2, EMULATED_CANN_FAULTS=fault)
    assert ended.returncode != 0
    assert ("SIGKILL" if "dead" in fault else fault.partition("=")[0]) in ended.stderr


def test_a_full_device_is_an_error_that_says_so() -> None:
    ended = trained(EMULATED_CANN_MEMORY_MIB="16")
    assert ended.returncode != 0
    assert "out of memory" in ended.stderr


_TWO_DEVICES = """
import torch, torch_npu
torch.ones(1000, device="npu:0") + torch.ones(1000, device="npu:1")
torch.npu.synchronize()
"""


def test_memory_of_another_device_is_an_error() -> None:
    ended = processes.run([sys.executable, "-c", _TWO_DEVICES], 300, env=_environment())
    assert ended.returncode != 0
    assert "memory of device 1, on device 0" in ended.stderr
