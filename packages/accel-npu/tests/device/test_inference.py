# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Inference functions over torch_npu's ops: what plain torch computes, and each op really called."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from accel_npu import NPU_Accelerator
from accel_ops.inference import GEGLU, SIGLU, CoreFunctions, TransformerFunctions

OPS = ("npu_rms_norm", "npu_add_rms_norm", "npu_rotary_mul", "npu_fusion_attention", "npu_swiglu")
NONE = torch.empty(1)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The names of the ops that were called."""
    seen: set[str] = set()

    def counting(name: str, op: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            seen.add(name)
            return op(*arguments, **options)

        return counted

    for name in OPS:
        monkeypatch.setattr(torch.ops.npu, name, counting(name, getattr(torch.ops.npu, name)))
    return seen


@pytest.fixture
def transformer() -> Any:
    return NPU_Accelerator().create_op_builder("InferenceBuilder").load()


@pytest.fixture
def core() -> Any:
    return NPU_Accelerator().create_op_builder("InferenceCoreBuilder").load()


def test_the_reason_names_the_ops() -> None:
    reason = NPU_Accelerator().create_op_builder("InferenceBuilder").reason
    assert "torch.ops.npu.npu_fusion_attention" in reason
    assert reason.endswith("the rest in plain torch")


def close(found: Any, wanted: Any) -> bool:
    return torch.allclose(found.cpu().float(), wanted.float(), atol=1e-5)


@pytest.mark.parametrize("halves", [True, False])
@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.parametrize("alibi", [False, True])
def test_attention_of_a_prompt_and_a_token_after_it(
    transformer: Any, called: set[str], halves: bool, groups: int, alibi: bool
) -> None:
    plain, width, batch = TransformerFunctions(), 8, 2
    for tokens, total in ((5, 5), (1, 6)):
        qkv = torch.randn(batch, tokens, (4 + 2 * groups) * width)
        mask = torch.zeros(batch, 1, 1, total)
        mask[0, ..., 0] = torch.finfo(torch.float32).min
        slopes = torch.randn(batch * 4, 1, total) if alibi else NONE
        rest = (width, halves, not halves, 4, groups, width**-0.25, True, False, 0, False, 0, 1)
        wanted = plain.softmax_context(qkv, mask, *rest, slopes, 10000, tokens > 1)
        found = transformer.softmax_context_fp32(
            qkv.npu(), mask.npu(), *rest, slopes.npu() if alibi else slopes, 10000, tokens > 1
        )
        seen = slice(1, None) if tokens > 1 else slice(None)  # the first query of a padded row sees nothing
        assert close(found[0][:, seen], wanted[0][:, seen])
        assert close(found[1], wanted[1])
        assert close(found[2], wanted[2])
    assert called == {"npu_rotary_mul", *(() if alibi else ("npu_fusion_attention",))}


@pytest.mark.parametrize("kind", [SIGLU, GEGLU])
@pytest.mark.parametrize("biased", [True, False])
def test_gates(core: Any, called: set[str], kind: int, biased: bool) -> None:
    x, bias = torch.randn(2, 3, 16), torch.randn(16) if biased else None
    wanted, found = torch.empty(2, 3, 8), torch.empty(2, 3, 8).npu()
    CoreFunctions().gated_activation(wanted, x, bias, kind)
    core.gated_activation(found, x.npu(), bias.npu() if bias is not None else None, kind)
    assert close(found, wanted)
    assert called == ({"npu_swiglu"} if kind == SIGLU else set())


def test_six_bit_weights_are_refused_with_what_there_is(core: Any) -> None:
    core.create_handle()
    with pytest.raises(AttributeError, match=r"no function cuda_wf6af16_linear(.|\n)*blas_linear"):
        core.cuda_wf6af16_linear()
