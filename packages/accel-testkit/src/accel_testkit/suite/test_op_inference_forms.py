# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op inference's forms: positions that are given, masks of every form, batches that change, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import Holds
from accel_testkit.suite.inference_functions import Attention, typed
from accel_testkit.suite.test_op_attention import Engine

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("InferenceBuilder")]

_HEADS, _WIDTH = 2, 4
_DO = "compare the op that InferenceBuilder loads with DeepSpeed's functions"


def _rows(batch: int, tokens: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(97)
    return torch.rand(batch, tokens, 3 * _HEADS * _WIDTH, generator=generator) * 2 - 1


def _attention(
    op: Any,
    rows: torch.Tensor,
    mask: torch.Tensor | None = None,
    *,
    groups: int = _HEADS,
    causal: bool = True,
    prompt: bool = True,
    positions: torch.Tensor | None = None,
) -> Any:
    none = rows.new_empty(1)
    given = none if mask is None else mask.to(rows.device)
    more = () if positions is None else (None, positions.to(rows.device))
    return typed(op, "softmax_context", rows.dtype)(
        rows, given, _WIDTH, True, False, _HEADS, groups, 0.7, causal, False, 0, mask is None, 0, 1, none,
        10000.0, prompt, *more,
    )  # fmt: skip


def _near(found: torch.Tensor, wanted: torch.Tensor, most: float = 1e-5) -> bool:
    return found.shape == wanted.shape and float((found - wanted).abs().max()) <= most


def test_given_positions_rotate(op: Any, device: torch.device) -> None:
    """`position_ids` of each sequence take the place of counted ones: the keys are those of tokens at these places."""
    rows, holds = _rows(2, 5).to(device), Holds()
    counted = _attention(op, rows)
    for shape in ((1, 5), (2, 5)):
        found = _attention(op, rows, positions=torch.arange(5).expand(shape))
        alike = all(_near(a, b) for a, b in zip(found, counted, strict=True))
        holds[f"positions {shape} that are counted"] = alike
    starts = torch.tensor([[0], [3]])
    moved = _attention(op, rows, positions=starts + torch.arange(5))
    late = _attention(op, torch.cat([rows[:, :3], rows], 1))
    holds["attention depends on differences of positions"] = _near(moved[0], counted[0], 1e-4)
    holds["the first sequence's keys"] = _near(moved[1][0], counted[1][0])
    holds["keys of the second, which begins at 3"] = _near(moved[1][1], late[1][1, :, 3:], 1e-4)
    holds["values are not rotated"] = _near(moved[2], counted[2])
    holds.expect("softmax_context() with position_ids", _DO)


def test_masks_of_every_form_hide_alike(op: Any, device: torch.device) -> None:
    """A mask may be additive or bool, of each query or of the sequence, longer than the keys; causal or not."""
    rows, holds = _rows(2, 4).to(device), Holds()
    seen = torch.tensor([[True, True, False, True], [True] * 4])
    least = torch.finfo(torch.float32).min
    forms = {
        "bool of a sequence": seen,
        "bool of queries": seen[:, None, None].expand(2, 1, 4, 4),
        "additive of a sequence": torch.zeros(2, 4).masked_fill(~seen, least),
        "additive of queries": torch.zeros(2, 1, 1, 4).masked_fill(~seen[:, None, None], least),
        "longer than the keys": torch.zeros(2, 1, 1, 6).masked_fill(
            ~torch.cat([seen, seen[:, :2]], 1)[:, None, None], least
        ),
    }
    for causal in (True, False):
        results = {name: _attention(op, rows, mask, causal=causal)[0].clone() for name, mask in forms.items()}
        plain = _attention(op, rows, causal=causal)[0]
        first = next(iter(results.values()))
        for name, found in results.items():
            holds[f"{name}, causal {causal}"] = _near(found, first)
        holds[f"a hidden key changes its queries, causal {causal}"] = not _near(first[0], plain[0], 1e-3)
        holds[f"the other sequence stays, causal {causal}"] = _near(first[1], plain[1])
    # Hidden is hidden, also where scores are large.
    loud = rows.clone()
    loud[:, 2] *= 300
    quiet = loud.clone()
    quiet[:, 2] = rows[:, 2]
    shown = [
        _attention(op, each, forms["bool of a sequence"], causal=False)[0].clone() for each in (loud, quiet)
    ]
    holds["a hidden key with large scores"] = _near(shown[0][0, [0, 1, 3]], shown[1][0, [0, 1, 3]])
    holds.expect("softmax_context() with a mask", _DO)


def test_cache_takes_other_batches(accelerator: DeepSpeedAccelerator, op: Any, device: torch.device) -> None:
    """A prompt of another batch, type or length restarts the sequence of a used layer; tokens then go on from it."""
    model = Attention(heads=_HEADS, groups=_HEADS, width=_WIDTH, rotary=_WIDTH)
    engine, holds = Engine(accelerator, model), Holds()
    for batch, tokens in ((2, 4), (3, 2), (1, 9), (2, 3)):
        for later in range(3):
            what = f"{batch} sequences of {tokens}, {later} tokens later"
            engine.check(0, 1 if later else tokens, what, batch, prompt=not later)
    rows = _rows(2, 3).to(device)
    heads = _attention(op, rows)[0].clone()
    holds["0 groups are as many as heads"] = _near(_attention(op, rows, groups=0)[0], heads)
    holds["many tokens are a prompt"] = _near(_attention(op, rows, prompt=False)[0], heads)
    two = _attention(op, rows[:, :2])[0].clone()
    holds["two tokens are a prompt"] = _near(_attention(op, rows[:, :2], prompt=False)[0], two)
    holds.expect("the cache of softmax_context()", _DO)


def test_what_there_is_not_is_refused(op: Any, device: torch.device) -> None:
    """Weights of int8, and repeating a cache before a prompt, are errors; so is another activation of the MLP."""
    x, w, g = (torch.ones(shape, device=device) for shape in ((1, 2, 8), (8, 8), (8,)))
    none, gemm = x.new_empty(1), typed(op, "mlp_gemm", torch.float32)

    def mlp(int8: bool, kind: int) -> Any:
        return gemm(x, x, None, w, w, g, g, g, 1e-5, True, False, none, none, int8, kind, False)

    calls: dict[str, Callable[[], Any]] = {
        "rms_qkv_gemm() of int8": lambda: typed(op, "rms_qkv_gemm", torch.float32)(
            x, w, none, g, 1e-5, True, False
        ),
        "mlp_gemm() of int8": lambda: mlp(True, 1),
        "mlp_gemm() with an unknown activation": lambda: mlp(False, 17),
    }
    holds = Holds()
    for name, call in calls.items():
        holds.raises(Exception, name, call)
    mlp(False, 1)
    op.reset_cache()
    repeat = typed(op, "repeat_kv_cache", torch.float32)
    holds["no layer has been used: nothing is repeated"] = repeat(1, 2) == []
    _attention(op, _rows(1, 2).to(device))
    op.reset_cache()
    holds.raises(Exception, "repeat_kv_cache() of an empty layer", lambda: repeat(1, 2))
    holds.expect("what transformer_inference refuses", _DO)
