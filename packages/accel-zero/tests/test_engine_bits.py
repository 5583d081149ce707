# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Without offload, the methods that are replaced for speed leave the bits of stock DeepSpeed's training."""

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

from accel_zero import many_tensors

pytestmark = pytest.mark.upstream
_SMALL_BUCKETS: dict[str, Any] = {"zero": {"reduce_bucket_size": 2000}, "limits": (600, 300)}
#: Each option once: accumulation, clipping, overflow, groups, recomputation, gradients in several pieces, fused Adam.
_USUAL: list[dict[str, Any]] = [
    {"dtype": "bf16", "accumulation": 2, "clip": 0.5, "groups": True},
    {"dtype": "fp16", "accumulation": 2, "clip": 0.1, "overflow": True, **_SMALL_BUCKETS},
    {"dtype": "fp32", "clip": 0.05, "overflow": True},
    {"dtype": "bf16", "recompute": "reentrant", "torch": False, **_SMALL_BUCKETS, "groups": True},
]
_MORE: list[dict[str, Any]] = [
    {"dtype": "bf16", "recompute": "other", "accumulation": 2},
    {"dtype": "bf16", "torch": False, "clip": 0.3, "accumulation": 2, "overflow": True},
    {"dtype": "bf16", "config": {"communication_data_type": "fp32"}, "clip": 0.5},
    {"dtype": "bf16", "config": {"bf16": {"check_grad_overflow": False}}, "clip": 0.5},
    {"dtype": "fp32", "accumulation": 3},
]
_OF_STAGE_3: list[dict[str, Any]] = [
    {"dtype": "bf16", "init": True, "clip": 0.5},
    {"dtype": "bf16", "zero": {"stage3_param_persistence_threshold": 100}, "recompute": "reentrant"},
    {
        "dtype": "fp16",
        "zero": {"stage3_param_persistence_threshold": 100},
        "accumulation": 2,
        "overflow": True,
    },
    {
        "dtype": "bf16",
        "zero": {"stage3_param_persistence_threshold": 0},
        "limits": (600, 1000),
        "unusual": True,
    },
    {"dtype": "bf16", "zero": {"overlap_comm": False}, "clip": 0.5},
]
#: Some stock methods run.
_UNUSUAL: list[dict[str, Any]] = [
    {"zero": {"overlap_comm": True}},
    {"zero": {"round_robin_gradients": True}, "groups": True},
    {"zero": {"reduce_scatter": False}},
    {"zero": {"contiguous_gradients": False}},
    {"zero": {"use_multi_rank_bucket_allreduce": False}},
    {"config": {"data_types": {"grad_accum_dtype": "fp32"}}, "clip": 0.5, "accumulation": 2},
]


@pytest.fixture
def trained(children: Any, tmp_path: Path) -> Any:
    """Train cases on ranks of the CPU, and compare."""
    if Version(importlib.metadata.version("deepspeed")) != Version("0.19.8"):
        pytest.skip("not run: deepspeed 0.19.8, of which all methods are replaced")

    def train(cases: list[dict[str, Any]], ranks: int) -> None:
        program = f"import engine_bits; engine_bits.main({str(tmp_path / 'store')!r}, {cases!r})"
        for report in children.ranks(program, ranks):
            for case, (stock, *others, last) in zip(cases, report, strict=True):
                assert all(other == stock for other in others), case
                assert len(set(map(str, stock))) > len(stock) // 3, case
                assert last in (True, stock) or case["stage"] == 0 or "unusual" in case, case

    return train


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.sample("2")
def test_training_has_stock_bits(trained, tmp_path, ranks):
    cases = [{"stage": stage, **case} for stage, case in zip((2, 1, 2, 2), _USUAL, strict=True)]
    cases += [{"stage": 0, **case} for case in _USUAL[::2]]
    cases += [{"stage": 3, **case} for case in (*_USUAL[1:3], *_OF_STAGE_3[:2])]
    resumed = {"dtype": "bf16", "clip": 0.5, "resume": str(tmp_path)}
    trained([*cases, {"stage": 1, **resumed}], ranks)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_training_has_stock_bits_in_all_cases(trained, tmp_path, stage, ranks):
    cases = [*_USUAL, *_MORE, {"dtype": "bf16", "clip": 0.5, "resume": str(tmp_path)}]
    cases += _OF_STAGE_3 if stage == 3 else []
    if stage in (1, 2):
        cases += [{"dtype": "bf16", "unusual": True, **case} for case in _UNUSUAL]
    trained([{"stage": stage, **case} for case in cases], ranks)


def test_iteration_makes_fewer_calls(children, tmp_path):
    program = f"import engine_bits as e; e.count({str(tmp_path / 'store')!r}, e.calls)"
    (found,) = children.ranks(program, 1)
    shares = {stage: ours / stock for stage, ((stock,), (ours,)) in found.items()}
    limits = {"0": 0.8, "1": 0.45, "2": 0.45, "3": 0.5}
    assert all(share <= limits[stage] for stage, share in shares.items()), shares


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_norms_of_list_have_stock_bits(dtype):
    torch.manual_seed(0)
    base = torch.randn(70_003).to(dtype)
    tensors = [base[start : start + size] for start in (0, 1, 3) for size in (1, 7, 64, 1000, 4097, 70_000)]
    tensors += [base[:70_000].view(7, -1).t(), base[:0], torch.full((9,), torch.inf, dtype=dtype)]
    for wide in (torch.float, torch.double):
        for norm, each in zip(many_tensors.norms(tensors, wide), tensors, strict=True):
            assert torch.equal(norm, torch.linalg.vector_norm(each.to(wide)))


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_invalid_element_is_found(value):
    tensors = [
        torch.zeros(many_tensors.SMALL + 1),
        torch.ones(3),
        torch.ones(2, dtype=torch.float16),
        torch.ones(0),
    ]
    assert many_tensors.any_invalid(tensors).item() is False
    for tensor in tensors[:3]:
        tensor[-1] = value
        assert many_tensors.any_invalid(tensors).item() is True
        tensor[-1] = 0
    assert many_tensors.any_invalid([torch.ones(0)]) is None
    assert many_tensors.any_invalid([torch.ones(2).to_sparse()]) is None
