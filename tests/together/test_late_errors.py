# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Operators that fail on the device after their call: plain torch replaces them, or an error names the lost device."""

import pytest

from shared.children import on_device

#: An op is loaded, and computes or raises.
PROGRAM = """
import json, sys, torch
from accel_core import get_accelerator
accelerator, (name, queued) = get_accelerator(), sys.argv[1:]
if queued == "queued":
    del torch.npu.SyncLaunchStream
def load():
    builder = accelerator.create_op_builder(name)
    try:
        return builder.load(), builder.reason
    except Exception as error:
        return None, f"{type(error).__name__} {error}"
op, reason = load()
lists = [[torch.full((2,), value, device=accelerator.device_name())] for value in (1.0, 2.0, 0.0, 0.0)]
if op and name == "FusedAdamBuilder":
    op.multi_tensor_adam(2048, torch.zeros(1), lists, 0.5, 0.9, 0.999, 1e-8, 1, 1, 1, 0.0)
    reason += f" {[round(value, 5) for value in lists[1][0].tolist()]}"
print(json.dumps([reason, load()[1]]))
"""


def loaded(key: str, name: str, failing: str, *, queued: bool = False) -> list[str]:
    """The reason, or the error, of an op that is loaded twice where operators of the device fail."""
    word = "queued" if queued else ""
    found: list[str] = on_device(key, "-c", PROGRAM, name, word, ACCEL_SIM_FAIL=failing).report
    return found


def test_failing_operator_is_replaced() -> None:
    reason, _ = loaded("npu", "FusedAdamBuilder", "_fused_adamw_")
    assert reason.startswith(
        "torch.ops.npu.npu_apply_adam_w and plain torch: torch._fused_adamw_ raises RuntimeError"
    )
    assert reason.endswith("[1.5, 1.5]")
    reason, _ = loaded("npu", "FusedAdamBuilder", "_fused_adamw_,_fused_adam_,npu_apply_adam_w")
    assert reason.startswith("plain torch (torch.ops.npu.npu_apply_adam_w raises RuntimeError: ")
    assert reason.endswith("[1.5, 1.5]")
    reason, _ = loaded("npu", "QuantizerBuilder", "npu_dynamic_quant")
    assert reason.startswith("plain torch: torch.ops.npu.npu_dynamic_quant raises RuntimeError: ")


@pytest.mark.parametrize(
    ("key", "name", "failing", "op"),
    [
        ("npu", "FusedAdamBuilder", "_fused_adamw_", "torch._fused_adamw_"),
        ("npu", "QuantizerBuilder", "npu_dynamic_quant", "torch.ops.npu.npu_dynamic_quant"),
        ("xpu", "FusedAdamBuilder", "_fused_adamw_", "torch._fused_adamw_"),
        ("cuda", "FusedAdamBuilder", "_fused_adam_", "torch._fused_adam_"),
        ("mps", "FusedAdamBuilder", "_fused_adam_", "torch._fused_adam_"),
        ("hpu", "FPQuantizerBuilder", "cast_from_fp8", "torch.ops.hpu.cast_from_fp8"),
    ],
)
@pytest.mark.sample("cuda*", "npu-Q*")
def test_device_lost_by_operator_raises(key: str, name: str, failing: str, op: str) -> None:
    first, again = loaded(key, name, failing, queued=key == "npu")
    assert first.startswith(f"DeviceFailed {op} failed its self-check, and {key} no longer computes")
    # torch_npu raises once; the others raise the error of the lost device at every wait.
    assert (
        "DeviceFailed" in again
        if key == "npu"
        else "started before has failed" in again or "CUDA error" in again
    )
