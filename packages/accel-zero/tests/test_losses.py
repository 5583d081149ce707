# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""With the methods that are replaced for speed, an offloaded training has stock DeepSpeed's losses, bit by bit."""

import importlib.metadata
import itertools
import math
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

pytestmark = pytest.mark.upstream
#: The only release of which every method is replaced.
_ALL = "0.19.8"
_KEYS = ("stage", "dtype", "accumulation", "clip", "optimizer")
_MATRIX = [
    dict(zip(_KEYS, case, strict=True))
    for case in itertools.product(
        (1, 2, 3), ("bf16", "fp16", "fp32"), (1, 3), (0.0, 0.5), ("AdamW", "Adam", "Lion", "Adagrad")
    )
]
_OPTIONS: list[dict[str, Any]] = [
    {"zero": {"reduce_bucket_size": 500}},
    {"zero": {"reduce_bucket_size": 10**6, "overlap_comm": True}},
    {"zero": {"reduce_scatter": False}},
    {"zero": {"offload_optimizer": {"device": "cpu", "pin_memory": True}}},
    {"data_types": {"grad_accum_dtype": "fp32"}},
    {"communication_data_type": "fp32"},
    {"bf16": {"bf16_master_weights_and_grads": True}},
]
_OPTIONS_OF_STAGE_3: list[dict[str, Any]] = [
    {"zero": {"offload_optimizer": {"device": "cpu", "ratio": 0.5}}},
    {"zero": {"offload_param": {"device": "cpu"}}},
]
_UNUSUAL = [
    {**_MATRIX[0], "stage": stage, "clip": 0.5, "accumulation": accumulation} | options
    for stage in (1, 2, 3)
    for accumulation in (1, 2)
    for options in (*_OPTIONS, *(_OPTIONS_OF_STAGE_3 if stage == 3 else ()))
]
#: Each value of each dimension.
_QUICK = [
    dict(zip(_KEYS, case, strict=True))
    for case in (
        (2, "bf16", 3, 0.5, "AdamW"),
        (3, "fp16", 1, 0.5, "Adam"),
        (1, "fp32", 1, 0.5, "Lion"),
        (3, "bf16", 3, 0.0, "Adagrad"),
        (2, "fp16", 1, 0.0, "AdamW"),
        (3, "fp32", 1, 0.5, "AdamW"),
    )
]
# As if the sums of squares were so inexact that DeepSpeed's own norms are needed in every step.
_QUICK[2]["unit"] = _QUICK[5]["unit"] = 1.0


def _run(children: Any, store: Path, cases: list[dict[str, Any]], ranks: int) -> list[list[Any]]:
    """The results of each rank."""
    reports: list[list[Any]] = children.ranks(
        f"import offload; offload.main({str(store)!r}, {cases!r})", ranks
    )
    return reports


def _check(reports: list[list[Any]], cases: list[dict[str, Any]]) -> None:
    for results in reports:
        for case, (stock, replaced, _, norms) in zip(cases, results, strict=True):
            assert replaced == stock, case
            assert len(set(stock)) > len(stock) // 2, case
            assert norms > 0 or "bf16_master_weights_and_grads" in str(case), case


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.sample("2")
def test_losses_and_norms_are_those_of_stock_deepspeed(native, tmp_path, ranks):
    cases = _QUICK if ranks == 1 else _QUICK[:2]
    reports = _run(native, tmp_path / "store", cases, ranks)
    _check(reports, cases)
    # The kernel of each optimizer has scaled the gradients itself.
    assert all(fused for results in reports for _, _, fused, _ in results)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("kind", ["bf16", "fp16", "fp32", "unusual options"])
def test_losses_are_those_of_stock_deepspeed_in_all_cases(native, tmp_path, ranks, stage, kind):
    chosen = _UNUSUAL if kind == "unusual options" else [case for case in _MATRIX if case["dtype"] == kind]
    cases = [case for case in chosen if case["stage"] == stage]
    _check(_run(native, tmp_path / "store", cases, ranks), cases)


# --- ZenFlow: with and without its overlapped step; losses of NaN are refused


@pytest.fixture
def native(children: Any) -> Any:
    """Processes with a DeepSpeed of which all methods are replaced, and whose optimizer process is native."""
    if Version(importlib.metadata.version("deepspeed")) != Version(_ALL):
        pytest.skip(f"not run: deepspeed {_ALL}")
    return children


def _check_zenflow(children: Any, store: Path, cases: list[dict[str, Any]], ranks: int) -> None:
    for report in children.ranks(f"import offload; offload.zenflow_main({str(store)!r}, {cases!r})", ranks):
        for case, (stock, replaced, immediate) in zip(cases, report, strict=True):
            assert replaced == stock, case
            assert immediate == replaced, case
            assert all(math.isfinite(loss) for loss in stock), case
            assert len(set(stock)) == len(stock), case


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("stage", [1, 2])
def test_losses_are_stocks_in_all_cases(native, tmp_path, stage, ranks):
    cases = [
        {"stage": stage, "dtype": dtype, "overlap": overlap, "clip": clip}
        for overlap in (True, False)
        for dtype, clip in (("bf16", 0.0), ("bf16", 0.5), ("fp32", 0.5), ("fp16", 0.5))
    ]
    cases.append({"stage": stage, "dtype": "bf16", "overlap": True, "full_warm_up_rounds": 0})
    _check_zenflow(native, tmp_path / "store", cases, ranks)


_ONE_RANK = {"DS_ACCELERATOR": "cpu", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
_ONE_RANK |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


def test_the_update_interval_auto_does_not_divide_losses_by_zero(native, tmp_path):
    snippet = "import offload; offload.intervals"
    code = f"{snippet}({str(tmp_path / 'store')!r}, stage=2, dtype='bf16', overlap=False)"
    losses, unscaled = native.run(code, **_ONE_RANK).report
    assert all(math.isfinite(loss) for loss in losses)
    assert len(set(losses)) == len(losses)
    assert losses == unscaled


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.sample("False")
def test_zenflow_trains_at_zero_3(native, tmp_path, overlap):
    code = f"import offload; offload.zenflow_alone({str(tmp_path / 'store')!r}, stage=3, dtype='fp32', "
    losses = native.run(f"{code}overlap={overlap})", **_ONE_RANK).report
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("options", "found"), [({"eps": 1e-8}, "eps=1e-08"), ({"loss_scale": 0}, "a dynamic loss scale")]
)
def test_losses_of_nan_are_refused_at_initialize(native, options, found):
    case = {"stage": 2, "overlap": False, "dtype": "fp16"} | options
    name, text = native.run(f"import offload; offload.refusal(**{case!r})", **_ONE_RANK).report
    assert name == "UnsupportedConfiguration"
    for part in ("[ACC-305]", found, "; expected ", "; replace "):
        assert part in text
