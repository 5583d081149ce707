# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builders of inference ops: the vendor's ops in the place of single functions, plain torch for the others."""

from typing import ClassVar

import torch

from accel_ops import inference
from accel_ops.inference import FusedFunctions, TransformerFunctions


def doubled(vals: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> torch.Tensor:
    return vals * 2


class Partly(inference.InferenceBuilder):
    FUSED: ClassVar[FusedFunctions] = {
        "rms_norm": ("aten.add", doubled),
        "rotate": ("aten.no_such_op", doubled),
    }


def test_an_op_takes_the_place_of_a_function_also_inside_others() -> None:
    functions = Partly().load()
    x = torch.ones(1, 2, 4)
    assert torch.equal(functions.rms_norm(x, x, 0.0), x * 2)
    assert torch.equal(functions.rms_qkv_gemm_fp32(x, torch.eye(4), x, x, 0.0, False, False)[0], x * 2)


def test_an_op_that_the_runtime_lacks_leaves_plain_torch() -> None:
    assert Partly().load().rotate is TransformerFunctions.rotate
    assert Partly().reason == "torch.ops.aten.add; the rest in plain torch"
