# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Operators that fail on the device after their call, as each vendor's runtime reports it."""

import json

import pytest

#: What calls return or raise, in order, after an operator failed on the first device.
PROGRAM = """
import torch
PACKAGE
device = torch.device(KEY)
runtime = torch.get_device_module(device)
def value(expression):
    found = eval(expression)
    return found.tolist() if isinstance(found, torch.Tensor) else found
x = torch.ones(2, device=device)
param, grad, first, second, step = (torch.full((1,), 1.0, device=device) for _ in range(5))
def fused():
    constants = dict(lr=1.0, beta1=0.5, beta2=0.5, weight_decay=0.0, eps=0.1, amsgrad=False, maximize=False)
    torch._fused_adamw_([param], [grad], [first], [second], [], [step], **constants)
print(json.dumps([outcome(lambda: value(each)) for each in LINES]))
"""
GARBAGE = -431602080.0  # 0xCDCDCDCD


@pytest.fixture
def outcomes(python):
    """Evaluate expressions, one after the other, where operators fail."""

    def run(key, *expressions, fail=("_fused_adamw_",), **options):
        package = f"import torch_{key}" if key in ("npu", "mlu") else ""
        source = (
            PROGRAM.replace("PACKAGE", package).replace("KEY", repr(key)).replace("LINES", repr(expressions))
        )
        done = python(key, source, fail=fail, **options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_npu_raises_once_and_drops_later_work(outcomes):
    # What torch_npu 2.13.0 gave on an emulated driver whose aclnnApplyAdamWV2 fails.
    called, again, raised, kept, dropped, in_place, copied, copy, waited, other, elsewhere = outcomes(
        "npu",
        "fused()",
        "x.add_(1) is x",
        "runtime.synchronize()",
        "param",
        "x + 1",
        "x",
        "torch.tensor([1.0, 2.0], device=device)",
        "x.clone()",
        "runtime.synchronize()",
        "runtime.Stream().synchronize()",
        "torch.ones(2, device='npu:1') + 1",
    )
    assert (called, again, waited, other) == (None, True, None, None)
    assert raised.startswith("RuntimeError: The Inner error is reported as above.")
    assert "the current working operator name is aten::_fused_adamw_" in raised
    assert (kept, dropped, in_place) == ([1.0], [GARBAGE] * 2, [1.0] * 2)
    assert (copied, copy) == ([1.0, 2.0], [GARBAGE] * 2)
    assert elsewhere == [2.0, 2.0]


@pytest.mark.slow
def test_vendor_s_own_operator_fails_late(outcomes):
    quantized, raised, dropped = outcomes(
        "npu",
        "[list(each.shape) for each in torch.ops.npu.npu_dynamic_quant(torch.ones(4, 8, device=device).half())]",
        "x",
        "(x > 0).sum()",
        fail=["npu_dynamic_quant"],
    )
    assert quantized == [[4, 8], [4]]
    assert "operator name is npu::npu_dynamic_quant" in raised
    assert dropped != 2


def test_pinned_copy_to_lost_npu(outcomes):
    _, _, copied = outcomes(
        "npu", "fused()", "x", "x.copy_(torch.full((2,), 7.0).pin_memory(), non_blocking=True)"
    )
    assert copied == [1.0, 1.0]


def test_sync_launch_stream_drops_nothing(outcomes):
    raised, after, other = outcomes(
        "npu",
        "runtime.stream(runtime.SyncLaunchStream()).__enter__() or fused()",
        "x + 1",
        "runtime.set_stream(runtime.default_stream()) or x + 1",
    )
    assert raised == "RuntimeError: NPU error: call aten::_fused_adamw_ failed"
    assert after == other == [2.0, 2.0]


@pytest.mark.parametrize(
    ("key", "kind"), [("cuda", "AcceleratorError: CUDA error"), ("xpu", "RuntimeError: XPU error")]
)
def test_other_devices_raise_at_every_wait(outcomes, key, kind):
    called, *raised = outcomes(key, "fused()", "runtime.synchronize()", "x", "(x + 1).sum().item()")
    assert called is None
    assert all(each.startswith(kind) and "_fused_adamw_" in each for each in raised)


def test_unknown_operator_is_an_error(python):
    done = python("npu", "import torch", fail=["fused_adamw", "npu_dynamic_quant"])
    assert "these operators cannot fail on the simulated device" in done.stderr
    assert "fused_adamw, npu_dynamic_quant" in done.stderr
