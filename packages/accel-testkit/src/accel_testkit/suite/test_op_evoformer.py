# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op evoformer: attention and its gradients for every form of its tensors, in parts, and with figures beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite import needs
from accel_testkit.suite.expect import Holds, largest

pytestmark = [pytest.mark.tier("device"), pytest.mark.needs("EvoformerAttnBuilder")]

#: Of gradients, beside which the rounding of the output counts, as the op reads it.
_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
#: Queries are this large, so that the scores have something to lose in a half type.
_LARGE = 12
#: More scores than an op in plain torch keeps at a time, in each of two batches: (batch, rows, length, heads, width).
_IN_PARTS = (2, 5, 1024, 4, 1)


@dataclass(frozen=True)
class AttentionForm:
    """shape: of q. bias1, bias2: whether there is one. room: figures behind the last query."""

    shape: tuple[int, ...]
    bias1: bool = False
    bias2: bool = False
    room: int = 0


_FORMS = {
    "one row": AttentionForm((5, 2, 4)),
    "rows": AttentionForm((3, 5, 2, 4), room=3),
    "batches": AttentionForm((2, 3, 5, 2, 4)),
    "many dimensions": AttentionForm((2, 1, 2, 1, 2, 3, 2, 4), room=1),
    "a bias of keys": AttentionForm((2, 3, 6, 2, 4), bias1=True, room=2),
    "a bias of pairs": AttentionForm((3, 2, 5, 3, 4), bias2=True),
    "both biases": AttentionForm((2, 3, 7, 2, 5), bias1=True, bias2=True, room=4),
    "32 long": AttentionForm((2, 3, 32, 2, 8), bias1=True, bias2=True),
    "one channel": AttentionForm((2, 3, 4, 2, 1)),
    "no rows": AttentionForm((2, 0, 5, 2, 4), bias1=True, bias2=True),
}
_TYPES = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("form", _FORMS)
def test_every_form_is_right(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device, form: str, dtype: str
) -> None:
    """Output, logarithms of the divisors, gradients, and sums of those of biases, are float64's in each type."""
    kind = _TYPES[dtype]
    needs.types(accelerator, kind)
    found, wanted = _run(op, device, _FORMS[form], kind)
    holds = Holds()
    for name, each in wanted.items():
        apart = _apart(found[name], each, 0.0 if name in ("o", "lse") else _TOLERANCE[kind], kind)
        holds[f"{name} is {apart:.3g} times as far from float64 as the type's rounding"] = apart <= 1
    do = "sum in float32 at least, add the gradients of biases to what is there; compare it with accel_ops.plain"
    holds.expect(f"evoformer_attn in {kind}, {form},", do)


def _run(
    op: Any, device: torch.device, form: AttentionForm, kind: torch.dtype
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(67)

    def new(*shape: int, times: float = 1.0) -> torch.Tensor:
        return (torch.randn(shape, generator=generator, dtype=torch.float64) * times).to(kind).double()

    shape, (length, heads, _) = form.shape, form.shape[-3:]
    biases = (
        new(*shape[:2], 1, 1, length) if form.bias1 else new(0),
        new(shape[0], 1, heads, length, length) if form.bias2 else new(0),
    )
    exact = [new(*shape, times=_LARGE), new(*shape), new(*shape), *biases]
    grad, before = new(*shape), [new(*bias.shape).float() for bias in biases]
    wanted = _reference(exact, grad, before)
    ours = [tensor.to(device, kind) for tensor in exact]
    rows = math.prod(shape[:-3])
    out = torch.full(shape, torch.nan, device=device, dtype=kind)
    lse = torch.zeros(rows, heads, length + form.room, device=device)
    op.attention(*ours, out, lse)
    grads = [torch.full(shape, torch.nan, device=device, dtype=kind) for _ in range(3)]
    added, delta = [tensor.to(device, copy=True) for tensor in before], torch.zeros_like(lse)
    op.attention_bwd(grad.to(device, kind), *ours[:3], out, lse, delta, *ours[3:], *grads, *added)
    names = ("q", "k", "v", "bias1", "bias2")
    found = {f"gradient of {name}": each for name, each in zip(names, [*grads, *added], strict=True)}
    found |= {"o": out, "lse": lse, "delta": delta}
    found |= {f"{name}, afterwards": each for name, each in zip(names, ours, strict=True)}
    wanted |= {f"{name}, afterwards": each for name, each in zip(names, exact, strict=True)}
    for name, filler in (("lse", math.inf), ("delta", 0.0)):
        behind = torch.full((rows, heads, form.room), filler, dtype=torch.float64)
        wanted[name] = torch.cat([wanted[name], behind], 2)
    return found, wanted


def _reference(
    exact: list[torch.Tensor], grad: torch.Tensor, before: list[torch.Tensor]
) -> dict[str, torch.Tensor]:
    leaves = [tensor.clone().requires_grad_() for tensor in exact]
    q, k, v, bias1, bias2 = leaves
    scores = torch.einsum("...qhd,...khd->...hqk", q, k) / math.sqrt(q.shape[-1])
    for bias in (bias1, bias2):
        scores = scores + bias if bias.numel() else scores
    out = torch.einsum("...hqk,...khd->...qhd", scores.softmax(-1), v)
    out.backward(grad)
    figures = (-1, *scores.shape[-3:-1]) if scores.numel() else (0, *scores.shape[-3:-1])
    wanted = {"o": out.detach(), "lse": scores.detach().logsumexp(-1).view(figures)}
    wanted["delta"] = (grad * wanted["o"]).sum(-1).transpose(-1, -2).reshape(figures)
    for name, leaf in zip(("q", "k", "v"), leaves, strict=False):
        wanted[f"gradient of {name}"] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    for name, leaf, former in zip(("bias1", "bias2"), leaves[3:], before, strict=True):
        wanted[f"gradient of {name}"] = former.double() + (0 if leaf.grad is None else leaf.grad)
    return wanted


def _apart(found: torch.Tensor, wanted: torch.Tensor, tolerance: float, kind: torch.dtype) -> float:
    """Return how many times further apart they are than allowed; inf for another shape."""
    if found.shape != wanted.shape:
        return math.inf
    mine = found.detach().cpu().double()
    apart = (mine - wanted).abs().masked_fill(mine == wanted, 0.0)
    rounding = torch.finfo(kind).eps / 2 if found.dtype == kind else 1e-6
    size = wanted.abs().nan_to_num(posinf=0.0)
    most = float(size.max()) if size.numel() else 0.0
    allowed = size * rounding * 1.02 + 2e-5 * (1 + most) + tolerance * max(1.0, most)
    return largest([0.0, *(apart / allowed).flatten().tolist()])


def test_large_problems_are_their_rows(op: Any, device: torch.device) -> None:
    """Scores of more than 64 MiB are computed in parts: each row is what it is alone."""
    generator, holds = torch.Generator().manual_seed(71), Holds()
    batch, rows, length, heads, _ = _IN_PARTS
    q, k, v = (torch.randn(_IN_PARTS, generator=generator).to(device) for _ in range(3))
    bias = torch.randn(batch, rows, 1, 1, length, generator=generator).to(device)
    row = torch.randn(batch, 1, heads, 1, length, generator=generator).to(device)
    pairs = row.expand(-1, -1, -1, length, -1).contiguous()
    out, lse = torch.zeros_like(q), torch.zeros(batch * rows, heads, length, device=device)
    op.attention(q, k, v, bias, pairs, out, lse)
    for first, second in ((0, 0), (0, 4), (1, 0), (1, 4)):
        part = (slice(first, first + 1), slice(second, second + 1))
        alone = [*(tensor[part].clone() for tensor in (q, k, v, bias)), pairs[part[0]]]
        one, figure = torch.zeros_like(alone[0]), torch.zeros(1, heads, length, device=device)
        op.attention(*alone, one, figure)
        holds.near(f"output of row {second} of {first}", out[part], one, 1e-5)
        holds.near(f"figures of row {second} of {first}", lse[first * rows + second], figure[0], 1e-5)
    holds.expect("a large problem of evoformer_attn", "compare the parts in which the scores are computed")
