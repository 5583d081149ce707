# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op attention: the memory of caches, and what `transformer_inference` refuses. Samples are in the specs of ops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_ops.reference import Attention
from accel_testkit.suite.expect import Holds
from accel_testkit.suite.ops import attention
from accel_testkit.suite.ops.calls import problems
from accel_testkit.suite.ops.spec import Numbers, Sample, typed

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("InferenceBuilder")]

_DO = "compare the op that InferenceBuilder loads with DeepSpeed's functions"


@pytest.mark.needs("reserved_memory")
def test_released_workspace_is_free(accelerator: DeepSpeedAccelerator, device: torch.device) -> None:
    """After `release_workspace()` the keys and values of a prompt take no memory: the hybrid engine then trains."""
    if accelerator.is_synchronized_device():
        pytest.skip("the figures are the host's, which keeps what was freed")
    op = accelerator.create_op_builder("InferenceBuilder").load()
    before = accelerator.memory_allocated()
    rows = torch.zeros(2, 640, 3 * 32 * 128)  # 40 MiB of keys and values
    model = Attention(heads=32, groups=32, width=128)
    attention.call(op, attention.arguments(model, rows.to(device), None, None, 0, True))
    held = accelerator.memory_allocated() - before
    op.release_workspace()
    left = accelerator.memory_allocated() - before
    holds = Holds({f"next to nothing of {held:,} bytes is left, found {left:,}": left <= held // 4})
    do = "free the keys and values, or give them back to the caching allocator"
    holds.expect("the memory of the cache after release_workspace()", do)


def test_two_ops_share_no_cache(accelerator: DeepSpeedAccelerator, device: torch.device) -> None:
    """Two loaded ops keep the sequences of two models."""
    (spec,), holds = attention.SPECS[:1], Holds()
    ops = [accelerator.create_op_builder(spec.builder).load() for _ in range(2)]
    new = Numbers(torch.float32)
    first, second, *_ = spec.samples(new)

    def with_another(call: Sample) -> Sample:
        """Make the calls of the other op after the first one of this op."""

        def then(found: list[torch.Tensor]) -> Sample | None:
            for problem in problems(spec, ops[1], second, device, torch.float32):
                holds[f"calls of the other op: {problem}"] = False
            return call.then(found) if call.then else None

        return replace(call, then=then)

    for problem in problems(spec, ops[0], with_another(first), device, torch.float32):
        holds[f"calls in turn: {problem}"] = False
    holds["both were called"] = True
    holds.expect("softmax_context() of two ops", _DO)


def test_what_there_is_not_is_refused(op: Any, device: torch.device) -> None:
    """Weights of int8, and repeating a cache before a prompt, are errors; so is another activation of the MLP."""
    x, w, g = (torch.ones(shape, device=device) for shape in ((1, 2, 8), (8, 8), (8,)))
    none, gemm = x.new_empty(1), typed(op, "mlp_gemm", torch.float32)

    def mlp(int8: bool, kind: int) -> Any:
        return gemm(x, x, None, w, w, g, g, g, 1e-5, True, False, none, none, int8, kind, False)

    holds, product = Holds(), typed(op, "rms_qkv_gemm", torch.float32)
    holds.raises(Exception, "rms_qkv_gemm() of int8", lambda: product(x, w, none, g, 1e-5, True, False))
    holds.raises(Exception, "mlp_gemm() of int8", lambda: mlp(True, 1))
    holds.raises(Exception, "mlp_gemm() with an unknown activation", lambda: mlp(False, 17))
    mlp(False, 1)
    op.reset_cache()
    repeat = typed(op, "repeat_kv_cache", torch.float32)
    holds["no layer has been used: nothing is repeated"] = repeat(1, 2) == []
    rows = torch.ones(1, 2, 96, device=device)
    attention.call(op, attention.arguments(Attention(), rows, None, None, 0, True))
    op.reset_cache()
    holds.raises(Exception, "repeat_kv_cache() of an empty layer", lambda: repeat(1, 2))
    holds.expect("what transformer_inference refuses", _DO)
