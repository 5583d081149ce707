# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""ZenFlow trains on the CPU accelerator, with and without its overlapped step; losses of NaN are refused."""

import importlib.metadata
import math
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

pytestmark = [
    pytest.mark.upstream,
    pytest.mark.skipif(
        Version(importlib.metadata.version("deepspeed")) < Version("0.19.8"),
        reason="not run: deepspeed 0.19.8, whose optimizer process is native",
    ),
]


def _check(children: Any, store: Path, cases: list[dict[str, Any]], ranks: int) -> None:
    for report in children.ranks(f"import overlapped; overlapped.main({str(store)!r}, {cases!r})", ranks):
        for case, (stock, replaced, immediate) in zip(cases, report, strict=True):
            assert replaced == stock, case
            assert immediate == replaced, case
            assert all(math.isfinite(loss) for loss in stock), case
            assert len(set(stock)) == len(stock), case


def test_an_overlapped_training_has_the_losses_of_steps_in_one_process(children: Any, tmp_path: Path) -> None:
    _check(children, tmp_path / "store", [{"stage": 2, "dtype": "bf16", "overlap": True}], 1)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("stage", [1, 2])
def test_losses_are_stocks_in_all_cases(children: Any, tmp_path: Path, stage: int, ranks: int) -> None:
    cases = [
        {"stage": stage, "dtype": dtype, "overlap": overlap, "clip": clip}
        for overlap in (True, False)
        for dtype, clip in (("bf16", 0.0), ("bf16", 0.5), ("fp32", 0.5), ("fp16", 0.5))
    ]
    cases.append({"stage": stage, "dtype": "bf16", "overlap": True, "full_warm_up_rounds": 0})
    _check(children, tmp_path / "store", cases, ranks)


_ONE_RANK = {"DS_ACCELERATOR": "cpu", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
_ONE_RANK |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


def test_the_update_interval_auto_does_not_divide_losses_by_zero(children: Any, tmp_path: Path) -> None:
    snippet = "import overlapped; overlapped.intervals"
    code = f"{snippet}({str(tmp_path / 'store')!r}, stage=2, dtype='bf16', overlap=False)"
    losses, unscaled = children.run(code, **_ONE_RANK).report
    assert all(math.isfinite(loss) for loss in losses)
    assert len(set(losses)) == len(losses)
    assert losses == unscaled


@pytest.mark.parametrize(
    ("options", "found"), [({"eps": 1e-8}, "eps=1e-08"), ({"loss_scale": 0}, "a dynamic loss scale")]
)
def test_losses_of_nan_are_refused_at_initialize(children: Any, options: dict[str, Any], found: str) -> None:
    case = {"stage": 2, "overlap": False, "dtype": "fp16"} | options
    name, text = children.run(f"import overlapped; overlapped.refusal(**{case!r})", **_ONE_RANK).report
    assert name == "InvalidZenFlow"
    for part in ("[ACC-409]", found, "expected: ", "do: "):
        assert part in text
